# A node, and the command: docs/docker.md. `docker build -t towline .` in a checkout.
FROM python:3.11-slim-bookworm AS build
WORKDIR /src
COPY . .
RUN python -m pip wheel --no-cache-dir --no-deps -w /dist . \
    && grep -oE '^[a-z0-9_.-]+==[^ \\]+( ; [^\\]+)?' requirements.lock > /dist/constraints.txt

FROM python:3.11-slim-bookworm
COPY --from=build /dist /dist
# The versions with which everything was tested.
RUN python -m pip install --no-cache-dir --find-links /dist --constraint /dist/constraints.txt 'towline[server]'
RUN useradd --create-home --uid 10911 towline && install -d -m 0700 -o towline -g towline /data
USER 10911
# For this processor, into the user's cache; another processor compiles again at the first start.
RUN python -m towline.kernels
VOLUME /data
EXPOSE 10911 10912
# SIGTERM stops the node in order. A healthcheck needs the role and the store: compose.yaml has one.
STOPSIGNAL SIGTERM
ENTRYPOINT ["towline"]
CMD ["master", "start", "--foreground", "--store", "/data"]
