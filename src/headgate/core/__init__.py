"""Pure: values in, values out. No I/O, clock, random, threads or logging."""
