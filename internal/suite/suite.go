// Package suite says which tests run. By default a package runs the cases that its
// promises need; with -long, or with FARFIELD_LONG=1 in the environment, it runs all
// of its cases.
package suite

import (
	"flag"
	"os"
)

var long = flag.Bool("long", false, "run all cases, as FARFIELD_LONG=1 does")

// IsLong reports whether all cases run. Tests call it, not their initialisation: the
// test cache then knows of the variable.
func IsLong() bool { return *long || os.Getenv("FARFIELD_LONG") != "" }
