package tokenizer_test

import (
	"fmt"
	"log"

	"github.com/farfield-ml/farfield/tokenizer"
)

func ExampleParse() {
	t, err := tokenizer.Parse([]byte(`{
		"added_tokens": [{"id": 1, "content": "[CLS]", "special": true}, {"id": 2, "content": "[SEP]", "special": true}],
		"normalizer": {"type": "BertNormalizer", "lowercase": true},
		"pre_tokenizer": {"type": "BertPreTokenizer"},
		"post_processor": {"type": "BertProcessing", "sep": ["[SEP]", 2], "cls": ["[CLS]", 1]},
		"decoder": {"type": "WordPiece", "prefix": "##"},
		"model": {"type": "WordPiece", "unk_token": "[UNK]",
			"vocab": {"[UNK]": 0, "[CLS]": 1, "[SEP]": 2, "cafe": 3, "##s": 4, "!": 5}}
	}`))
	if err != nil {
		log.Fatal(err)
	}
	e := t.Encode("Cafés!")
	text, err := t.Decode(e.IDs)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(e.IDs, e.Offsets)
	fmt.Println(text)
	// Output:
	// [1 3 4 5 2] [[0 0] [0 5] [5 6] [6 7] [0 0]]
	// cafes!
}
