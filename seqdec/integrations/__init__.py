"""Our methods in the interfaces of other libraries, each of which is an extra: `pip install 'seqdec[optuna]'`."""
