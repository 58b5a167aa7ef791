// Package suite says which tests run, and where their files lie. By default a package runs the cases that its promises need.
// With -long, or with FARFIELD_LONG=1 in the environment, it runs all cases.
package suite

import (
	"flag"
	"os"
)

var long = flag.Bool("long", false, "run all cases, as FARFIELD_LONG=1 does")

// IsLong reports whether all cases run. Call it inside tests, not during initialisation, so that
// the test cache takes the variable into account.
func IsLong() bool { return *long || os.Getenv("FARFIELD_LONG") != "" }
