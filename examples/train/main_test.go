package main

func Example() {
	main()
	// Output:
	// 25216 weights
	// step   0: loss 2.1
	// step  50: loss 0.3
	// step 100: loss 0.0
	// step 150: loss 0.0
	// it has learned to copy: true
}
