// Command swap puts attention of linear cost into a published model of texts, and prints what the model
// loses. go run . DIR TEXT OUT names the folder of the model, a file of texts like those that it will
// read, and the new folder.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"strings"

	"github.com/farfield-ml/farfield"
	"github.com/farfield-ml/farfield/pretrained"
)

func main() {
	if len(os.Args) != 4 {
		log.Fatal("usage: swap DIR TEXT OUT")
	}
	text, err := os.ReadFile(os.Args[2])
	if err != nil {
		log.Fatal(err)
	}
	swap(os.Args[1], string(text), os.Args[3])
}

func swap(dir, text, out string) {
	page, err := pretrained.WriteExchanged(context.Background(), out, dir, []string{text}, pretrained.ExchangeOptions{Cosine: 0.99})
	if err != nil {
		log.Fatal(err)
	}
	verdict, _, _ := strings.Cut(string(page), "\n")
	fmt.Println(verdict)
	m, err := farfield.Open(out)
	if err != nil {
		log.Fatal(err)
	}
	vectors, err := m.Embed(context.Background(), "the cat sat on a mat.")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("a vector of %d numbers\n", len(vectors[0]))
}
