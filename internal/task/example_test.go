package task_test

import (
	"fmt"
	"log"
	"math"

	"github.com/farfield-ml/farfield/internal/task"
	"github.com/farfield-ml/farfield/internal/token"
)

func Example() {
	text, err := task.NewText(task.InventText(1, 100_000), token.NewByteVocabulary())
	if err != nil {
		log.Fatal(err)
	}
	loss := task.NewNgram(text.Tokens(task.Train).All(), text.Vocab.Size()).Loss(text.Tokens(task.Valid).All())
	fmt.Printf("%.1f bits per byte alone, %.1f after one byte, %.1f after two\n",
		loss[0]/math.Ln2, loss[1]/math.Ln2, loss[2]/math.Ln2)
	// Output:
	// 4.5 bits per byte alone, 2.6 after one byte, 1.6 after two
}
