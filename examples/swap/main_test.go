package main

func Example() {
	main()
	// Output:
	// softmax is softmax: true
	// fastmax is another function: true
	// no token sees those after it: true
}
