//go:build docs

package main

func Example() {
	main()
	// Output:
	// loss 73.9117
	// dq +0.038357, by differences +0.038356
	// dk -0.018902, by differences -0.018898
	// dv -0.217040, by differences -0.217040
	// computed in the direct form; 45 features of a row
}
