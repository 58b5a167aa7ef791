package published

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/farfield-ml/farfield/internal/infile"
)

// maxPrompt bounds the bytes of a prompt, which every text repeats.
const maxPrompt = 1 << 16

// Prompts holds the texts that a folder wants before inputs, such as "query: ".
// config_sentence_transformers.json lists them by name.
type Prompts struct {
	Texts   map[string]string
	Default string // name of the prompt that is used unless another is asked for; "": none
}

// Names returns the names of the prompts, sorted.
func (p *Prompts) Names() []string { return slices.Sorted(maps.Keys(p.Texts)) }

// Check returns an error that lists the names, unless name is one of them or empty.
func (p *Prompts) Check(name string) error {
	if _, has := p.Texts[name]; has || name == "" {
		return nil
	}
	if len(p.Texts) == 0 {
		return fmt.Errorf("prompt: %q, but the folder has no prompts", infile.Shorten(name))
	}
	names := p.Names()
	for i := range names {
		names[i] = infile.Shorten(names[i])
	}
	return fmt.Errorf("prompt: %q is none of %s", infile.Shorten(name), infile.Shorten(strings.Join(names, ", ")))
}

// find returns the text of the prompt of a name; nil: of the default. It returns an error
// where Check does.
func (p *Prompts) find(name *string) (string, error) {
	if name == nil {
		name = &p.Default
	}
	return p.Texts[*name], p.Check(*name)
}

// Prompts returns the prompts of the folder. It returns an error if the files that describe
// vectors are malformed.
func (m *Model) Prompts() (*Prompts, error) {
	s, err := m.sentence()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", m.dir, err)
	}
	return &s.prompts, nil
}

// prompts reads prompts and default_prompt_name. sentence-transformers adds empty prompts for
// queries and documents, which a default may name.
func (f *fields) prompts() Prompts {
	p := Prompts{Texts: map[string]string{}, Default: f.text("default_prompt_name", "")}
	f.decode("prompts", "an object of texts", &p.Texts)
	for _, name := range p.Names() {
		if n := len(p.Texts[name]); n > maxPrompt {
			f.fail("prompts", "%q has %d bytes, at most %d are read", infile.Shorten(name), n, maxPrompt)
		}
	}
	if p.Check(p.Default) != nil {
		if p.Default != "query" && p.Default != "document" {
			f.fail("default_prompt_name", "is %q, which prompts does not have", infile.Shorten(p.Default))
		}
		p.Default = ""
	}
	return p
}

// countPrompt returns the number of tokens of a prompt with the special tokens before it.
func (r *textReader) countPrompt(prompt string) int {
	ids := r.words.Encode(prompt).IDs
	if n := len(ids); n > 0 && r.words.IsSpecial(ids[n-1]) {
		return n - 1
	}
	return len(ids)
}
