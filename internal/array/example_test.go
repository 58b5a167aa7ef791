package array_test

import (
	"bytes"
	"fmt"
	"log"

	"github.com/farfield-ml/farfield/internal/array"
)

func Example() {
	q, err := array.New("q", []float32{1, 2, 3, 4, 5, 6}, 3, 2)
	if err != nil {
		log.Fatal(err)
	}
	mask, err := array.New("keymask", []uint8{1, 1, 0}, 3)
	if err != nil {
		log.Fatal(err)
	}
	var file bytes.Buffer
	if err := array.WriteNPZ(&file, []*array.Array{q, mask}); err != nil {
		log.Fatal(err)
	}

	f, err := array.NewNPZ(bytes.NewReader(file.Bytes()), int64(file.Len()))
	if err != nil {
		log.Fatal(err)
	}
	for _, name := range f.Names() {
		a, err := f.ReadArray(name)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(a.Name, a.DType, a.Shape)
	}
	a, err := f.ReadArray("keymask")
	if err != nil {
		log.Fatal(err)
	}
	keep, err := a.Bool()
	fmt.Println(keep, err)
	_, err = a.Float32()
	fmt.Println(err)
	// Output:
	// q f4 [3 2]
	// keymask u1 [3]
	// [true true false] <nil>
	// keymask: dtype is u1; f4 or f8 is needed
}
