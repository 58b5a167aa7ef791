//go:build docs

package main

func Example() {
	main()
	// Output:
	// 400 tokens are remembered in 49252 bytes
	// 200 tokens are remembered in 49252 bytes
	// the same bits after a load: true
}
