//go:build docs

package main

func Example() {
	main()
	// Output:
	// compound: 153 features of a row
	//   both forms agree: true
	//   so does a state that is saved half-way: true
	//   its gradient is the derivative: true
	// softplus: 16 features of a row
	//   both forms agree: true
	//   so does a state that is saved half-way: true
	//   its gradient is the derivative: true
	// a model with compound is saved and read back: true
}
