//go:build docs

package main

func Example() {
	main()
	// Output:
	// step   0: loss 5.6
	// step 119: loss 1.0
	// one two three four five
}
