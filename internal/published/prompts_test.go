package published

import (
	"slices"
	"strings"
	"testing"
)

const sentencePrompts = sentenceFile

func TestPromptsStandBeforeTexts(t *testing.T) {
	t.Parallel()
	const prompts = `"prompts":{"query":"the ","document":"","passage":"a dog "}`
	for _, c := range []struct {
		config string
		prompt *string
		want   string // text with the same vector
	}{
		{`{` + prompts + `}`, nil, "cat"},
		{`{` + prompts + `}`, new(""), "cat"},
		{`{` + prompts + `}`, new("query"), "the cat"},
		{`{` + prompts + `}`, new("document"), "cat"},
		{`{` + prompts + `}`, new("passage"), "a dog cat"},
		{`{` + prompts + `,"default_prompt_name":"query"}`, nil, "the cat"},
		{`{` + prompts + `,"default_prompt_name":"query"}`, new(""), "cat"},
		{`{` + prompts + `,"default_prompt_name":"query"}`, new("passage"), "a dog cat"},
		{`{"default_prompt_name":"query"}`, nil, "cat"},
		{`{"prompts":{"query":null},"default_prompt_name":null}`, new("query"), "cat"},
		{`{"prompts":null}`, new(""), "cat"},
	} {
		v, err := openSentence(t, map[string]string{sentencePrompts: c.config}).EmbedWith(t.Context(), []string{"cat"}, EmbedOptions{Prompt: c.prompt})
		if err != nil {
			t.Errorf("%s: %v", c.config, err)
			continue
		}
		want, err := openSentence(t, nil).Embed(t.Context(), []string{c.want})
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(v.Rows[0], want[0]) {
			t.Errorf("%s: the vector is not that of %q", c.config, c.want)
		}
	}
}

func TestUnknownAndLongPromptsAreRefused(t *testing.T) {
	t.Parallel()
	long := `{"prompts":{"query":"` + strings.Repeat("the ", maxPrompt/4) + `the"}}`
	for _, c := range []struct{ config, prompt, want string }{
		{`{"prompts":{"query":"the ","document":"a "}}`, "question", `prompt: "question" is none of document, query`},
		{`{}`, "query", `prompt: "query", but the folder has no prompts`},
		{`{"prompts":{"query":"the "},"default_prompt_name":"question"}`, "query", `default_prompt_name: is "question", which prompts does not have`},
		{`{"prompts":["the "]}`, "query", `prompts: is ["the "], an object of texts is needed`},
		{long, "query", `prompts: "query" has 65539 bytes, at most 65536 are read`},
	} {
		m := openSentence(t, map[string]string{sentencePrompts: c.config})
		if _, err := m.EmbedWith(t.Context(), []string{"cat"}, EmbedOptions{Prompt: &c.prompt}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.80s: %v, want %q", c.config, err, c.want)
		}
	}
}

// TestVectorsLeaveThePromptOut compares vectors with the rows of Forward after the prompt.
func TestVectorsLeaveThePromptOut(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"mean", "cls", "max", "lasttoken"} {
		m := openSentence(t, map[string]string{
			"1_Pooling/config.json": `{"pooling_mode":"` + mode + `","include_prompt":false}`,
			sentencePrompts:         `{"prompts":{"query":"the dog "},"default_prompt_name":"query"}`,
		})
		v, err := m.Embed(t.Context(), []string{"cat", "sun on the mat"})
		if err != nil {
			t.Fatal(err)
		}
		for i, text := range []string{"cat", "sun on the mat"} {
			ids := m.Tokenizer().Encode("the dog " + text).IDs
			out, err := m.Forward(t.Context(), &Input{B: 1, N: len(ids), IDs: ids})
			if err != nil {
				t.Fatal(err)
			}
			rows, err := out.LastHidden.Float32()
			if err != nil {
				t.Fatal(err)
			}
			const skip = 3 // [CLS] the dog
			s := &sentence{pools: []string{map[string]string{"mean": poolMean, "cls": poolFirst, "max": poolMax, "lasttoken": poolLast}[mode]}}
			want := s.apply(rows[skip*8:], len(ids)-skip, 0, 8)
			for j := range want {
				if d := v[i][j] - want[j]; d > 1e-6 || d < -1e-6 {
					t.Errorf("%s, %q: element %d is %g, want %g", mode, text, j, v[i][j], want[j])
				}
			}
		}
		if _, err := m.EmbedWith(t.Context(), []string{"cat"}, EmbedOptions{MaxTokens: 3}); err == nil || !strings.Contains(err.Error(), "the prompt, which the vector leaves out, has 3") {
			t.Errorf("%s: no token behind the prompt: %v", mode, err)
		}
		// [CLS] the dog [SEP] has no token of the text.
		if _, err := m.EmbedWith(t.Context(), []string{"cat"}, EmbedOptions{MaxTokens: 4}); err == nil || !strings.Contains(err.Error(), "leave no room") {
			t.Errorf("%s: the text is cut away: %v", mode, err)
		}
		if _, err := m.EmbedWith(t.Context(), []string{"cat"}, EmbedOptions{MaxTokens: 5}); err != nil {
			t.Errorf("%s: %v", mode, err)
		}
	}
}
