"""`python -m towline.pipeline NAME ...`, and `spark-submit --py-files towline.zip pipeline/__main__.py NAME ...`.

spark-submit runs it as a lone script: then the package comes from --py-files, an installation, or the checkout that
this file lies in, in this order.
"""

import sys
from importlib import import_module
from pathlib import Path

HERE = Path(__file__).resolve().parent
CHECKOUT = HERE.parent  # or, in an installation, `towline` itself
HOME = CHECKOUT if (CHECKOUT / "towline").is_dir() else CHECKOUT.parent


def main() -> None:
    if not __package__:  # a script's own directory is on the path, and its modules are none to import by bare names
        sys.path[:] = [each for each in sys.path if Path(each or ".").resolve() != HERE]
        sys.path.append(str(HOME))
    sys.exit(import_module("towline.pipeline.arguments").main(sys.argv[1:]))


if __name__ == "__main__":
    main()
