package mechanism

import "fmt"

// checkHeads reports numbers of some heads, or of one for all, in a call of
// others.
func checkHeads(name string, have, heads int) error {
	if have != 1 && have != heads {
		return fmt.Errorf("q: has %d heads, %s is of %d", heads, name, have)
	}
	return nil
}
