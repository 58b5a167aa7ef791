// Package conformance has the laws that mechanisms keep, as TestLaws of package mechanism found them.
package conformance

import _ "embed"

// Text lists the laws, then mechanisms with a mark for each law, then the reasons of missing marks.
// TestLaws fails if it finds others; with -write it writes them.
//
//go:embed laws.txt
var Text string
