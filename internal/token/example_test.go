package token_test

import (
	"fmt"
	"log"

	"github.com/farfield-ml/farfield/internal/token"
)

func Example() {
	v, err := token.NewCharVocabulary([]byte("the cat sat"))
	if err != nil {
		log.Fatal(err)
	}
	tokens, err := v.Encode(nil, []byte("at the"))
	if err != nil {
		log.Fatal(err)
	}
	text, err := v.Decode(nil, tokens...)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(v.Size(), tokens)
	fmt.Printf("%s\n", text)
	_, err = v.Encode(nil, []byte("hat?"))
	fmt.Println(err)
	// Output:
	// 7 [1 6 0 6 4 3]
	// at the
	// character '?' at offset 3 is not in the vocabulary of 7 characters
}
