package fetch_test

import (
	"fmt"
	"log"

	"github.com/farfield-ml/farfield/internal/fetch"
)

func Example() {
	set, err := fetch.Lookup("warandpeace")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(set.Files[0].URLs[0])
	fmt.Println(set.VerificationMethod())
	fmt.Println(set.State("no/such/folder").IsReady())
	// Output:
	// https://www.gutenberg.org/files/2600/2600-0.txt
	// not verified: no published checksum known
	// false
}
