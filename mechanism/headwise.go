package mechanism

import "fmt"

// checkHeads returns an error if an array of have heads fits neither all heads of a
// call nor, with one head, is shared by them.
func checkHeads(name string, have, heads int) error {
	if have != 1 && have != heads {
		return fmt.Errorf("q: has %d heads, %s is of %d", heads, name, have)
	}
	return nil
}
