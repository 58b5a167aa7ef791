package mechanism

import "fmt"

// checkHeads returns an error unless an array with have heads fits a call with heads
// heads: it needs as many, or one that all of them share.
func checkHeads(name string, have, heads int) error {
	if have != 1 && have != heads {
		return fmt.Errorf("q: has %d heads, %s is of %d", heads, name, have)
	}
	return nil
}
