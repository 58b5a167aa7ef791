package dataset_test

import (
	"fmt"
	"log"
	"strings"

	"github.com/farfield-ml/farfield/internal/dataset"
)

func Example() {
	records, err := dataset.ReadFASTA(strings.NewReader(">chr1 a small one\nACGT\nACG\n"))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s: %s\n", records[0].Name, records[0].Bases)

	_, err = dataset.ReadIDX(strings.NewReader("\x00\x00\x08\x01\x00\x00\xea\x60abc"))
	fmt.Println(err)
	// Output:
	// chr1: ACGTACG
	// data: truncated: 3 of 60000 bytes
}
