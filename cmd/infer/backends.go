package main

// Backends besides the native one register themselves.
import (
	_ "terrace/model/gorgonia"
	_ "terrace/model/xla"
)
