package token

import (
	"encoding/json"
	"fmt"
	"io"
	"unicode/utf8"

	"github.com/farfield-ml/farfield/internal/atomicfile"
	"github.com/farfield-ml/farfield/internal/infile"
	"github.com/farfield-ml/farfield/tokenizer"
)

// format and version name the file of a vocabulary.
const (
	format  = "farfield vocabulary"
	version = 1
)

// maxFile bounds the file of a vocabulary: all code points fit, and published tokenizers.
const maxFile = 64 << 20

// vocabularyFile is the JSON of a vocabulary.
type vocabularyFile struct {
	Format  string `json:"format"`
	Version int    `json:"version"`
	Kind    string `json:"kind"`
	Chars   string `json:"chars,omitempty"` // in order of code points

	Tokenizer json.RawMessage `json:"tokenizer,omitempty"` // a tokenizer.json
}

// MarshalJSON returns the vocabulary as JSON, with format and version. Its error is always nil.
func (v *Vocabulary) MarshalJSON() ([]byte, error) {
	f := vocabularyFile{Format: format, Version: version, Kind: v.Kind(), Chars: string(v.chars)}
	if v.tokenizer != nil {
		f.Tokenizer = v.tokenizer.JSON()
	}
	return json.Marshal(f)
}

// UnmarshalJSON replaces v by the vocabulary that MarshalJSON wrote. It returns an error for
// another format, version or kind, and for characters that do not ascend.
func (v *Vocabulary) UnmarshalJSON(data []byte) error {
	var f vocabularyFile
	if err := json.Unmarshal(data, &f); err != nil {
		return fmt.Errorf("vocabulary: %w", err)
	}
	switch {
	case f.Format != format:
		return fmt.Errorf("vocabulary: format is %q, not %q", f.Format, format)
	case f.Version != version:
		return fmt.Errorf("vocabulary: version is %d, this program reads %d", f.Version, version)
	case f.Kind == KindWords && f.Chars == "":
		t, err := tokenizer.Parse(f.Tokenizer)
		if err != nil {
			return fmt.Errorf("vocabulary: %w", err)
		}
		*v = Vocabulary{tokenizer: t}
		return nil
	case f.Tokenizer != nil:
		return fmt.Errorf("vocabulary: kind is %q, but there is a tokenizer", f.Kind)
	case f.Kind == KindBytes && f.Chars == "":
		*v = Vocabulary{}
		return nil
	case f.Kind != KindChars:
		return fmt.Errorf("vocabulary: kind is %q, not %s, %s or %s", f.Kind, KindBytes, KindChars, KindWords)
	case f.Chars == "":
		return fmt.Errorf("vocabulary: there are no characters")
	}
	chars := []rune(f.Chars)
	for i, r := range chars {
		if i > 0 && r <= chars[i-1] {
			return fmt.Errorf("vocabulary: character %d is %q, after %q", i, r, chars[i-1])
		}
		if !utf8.ValidRune(r) {
			return fmt.Errorf("vocabulary: character %d is not Unicode", i)
		}
	}
	*v = *newCharVocabulary(chars)
	return nil
}

// Save writes the vocabulary as JSON, atomically. For a tokenizer it writes
// tokenizer.Tokenizer.JSON, which only approximates a tokenizer.model. It returns an error if the
// file cannot be written.
func (v *Vocabulary) Save(path string) error {
	return atomicfile.WriteJSON(path, v)
}

// LoadVocabulary reads a vocabulary that Save wrote. It returns an error if the file is
// missing, too long or damaged.
func LoadVocabulary(path string) (*Vocabulary, error) {
	f, err := infile.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxFile {
		return nil, fmt.Errorf("%s: has more than %d bytes", path, maxFile)
	}
	v := new(Vocabulary)
	if err := json.Unmarshal(data, v); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return v, nil
}
