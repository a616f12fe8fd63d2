"""python -m commonplace.cli"""

from commonplace.cli import main

main()
