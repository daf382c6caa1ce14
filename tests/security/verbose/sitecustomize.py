"""Makes every Python process whose PYTHONPATH has this folder log all that there is, to stderr."""

import logging

logging.basicConfig(level=logging.DEBUG, format="%(process)d %(levelname)s %(name)s: %(message)s")
logging.debug("this process logs all")
