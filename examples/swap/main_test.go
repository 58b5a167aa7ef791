package main

func Example() {
	swap("../../pretrained/testdata/tiny")
	// Output:
	// softmax map[]: cosine 1.000
	// local map[span:512]: cosine 1.000
	// local map[span:2]: cosine 0.987
	// fastmax map[]: cosine 1.000
}
