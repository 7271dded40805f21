"""A web service that puts each order into the log before it answers.

    python examples/fastapi_service.py tcp://127.0.0.1:10911

calls the service once, without a port of its own. Under a server: `uvicorn.run(service("tcp://127.0.0.1:10911"))`.
The producer belongs to the application: it is opened once, and any number of requests use it at the same time. Needs
fastapi and, for its TestClient, httpx2.
"""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, HTTPException
from fastapi.testclient import TestClient

from towline import Message, TowlineError
from towline.aio import AsyncProducer


def service(endpoint: str) -> FastAPI:
    @asynccontextmanager
    async def with_producer(app: FastAPI) -> AsyncIterator[None]:
        async with AsyncProducer(endpoint, value_serializer="json") as producer:
            app.state.producer = producer
            yield

    app = FastAPI(lifespan=with_producer)

    @app.post("/orders", status_code=201)
    async def order(order: dict[str, Any]) -> dict[str, Any]:
        message = Message("web-orders", order, key=order["customer"], keys=[f"order-{order['id']}"])
        try:
            result = await app.state.producer.send(message)
        except TowlineError as error:  # not acknowledged: the caller has to know
            raise HTTPException(503, str(error)) from error
        if not result.acknowledged:
            raise HTTPException(503, result.status.name)
        return {"stored": order["id"], "offset": result.queue_offset}

    return app


def main(endpoint: str) -> None:
    with TestClient(service(endpoint)) as client:
        answer = client.post("/orders", json={"id": 17, "customer": "anna", "price": 4.5})
    print(answer.status_code, answer.json())


if __name__ == "__main__":
    main(sys.argv[1])
