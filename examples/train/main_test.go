//go:build docs

package main

func Example() {
	main()
	// Output:
	// step   1: loss 2.1
	// step 151: loss 0.0
	// it repeats words that it has not seen: true
}
