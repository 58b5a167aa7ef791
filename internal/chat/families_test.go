package chat

import (
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"
)

// familyMessage is a message of testdata/families.json.
type familyMessage struct {
	Role, Name string
	Content    *string
	ToolCalls  json.RawMessage `json:"tool_calls"`
	ToolCallID string          `json:"tool_call_id"`
}

// TestTextsOfFamiliesAreThoseOfTransformers renders templates with the constructs of current models
// for conversations with tools, calls, content that is none, and an answer that is continued.
func TestTextsOfFamiliesAreThoseOfTransformers(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("testdata/families.json")
	if err != nil {
		t.Fatal(err)
	}
	var all struct {
		Templates     map[string][]string
		Special       map[string]string
		Conversations map[string]struct {
			Messages          []familyMessage
			Tools             json.RawMessage
			Prompt, Continues bool
		}
		Cases []struct{ Template, Conversation, Text, Error string }
	}
	if err := json.Unmarshal(data, &all); err != nil {
		t.Fatal(err)
	}
	templates := map[string]*Template{}
	for name, lines := range all.Templates {
		if templates[name], err = Parse(strings.Join(lines, "\n")); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	equal := 0
	for _, c := range all.Cases {
		of := all.Conversations[c.Conversation]
		o := Options{SpecialTokens: all.Special, NeedsAnswer: of.Prompt, Continues: of.Continues}
		if string(of.Tools) != "null" {
			o.Tools = of.Tools
		}
		var messages []Message
		for _, m := range of.Messages {
			x := Message{Role: m.Role, Name: m.Name, ToolCalls: m.ToolCalls, ToolCallID: m.ToolCallID, HasNoContent: m.Content == nil}
			if m.Content != nil {
				x.Content = *m.Content
			}
			messages = append(messages, x)
		}
		if templates[c.Template] == nil {
			continue
		}
		text, err := templates[c.Template].Render(messages, o)
		var refused *RefusedError
		switch {
		case c.Error != "" && err == nil:
			t.Errorf("%s, %s: no error, want %q", c.Template, c.Conversation, c.Error)
		case c.Error != "" && errors.As(err, &refused) && refused.Message != c.Error:
			t.Errorf("%s, %s: refused by %q, want %q", c.Template, c.Conversation, refused.Message, c.Error)
		case c.Error == "" && (err != nil || text != c.Text):
			t.Errorf("%s, %s: %v, text is\n%q, want\n%q", c.Template, c.Conversation, err, text, c.Text)
		default:
			equal++
		}
	}
	t.Logf("%d of %d cases are equal", equal, len(all.Cases))
}

// TestFurtherFiltersAndMethodsAreJinjas has texts of transformers 5.24.0 and Jinja 3.1.
func TestFurtherFiltersAndMethodsAreJinjas(t *testing.T) {
	t.Parallel()
	for source, want := range map[string]string{
		`{% for r, g in [{'a':'B','n':1},{'a':'c','n':2},{'a':'b','n':3}]|groupby('a') %}{{ r }}={{ g|map(attribute='n')|join }} {% endfor %}`: `B=13 c=2 `,
		`{{ 'x{}y{}'.format(1, 'b') }}{{ '{1}{0}{{}}'.format('a', 'b') }}{{ '{k}!'.format(k=2) }}`:                                             `x1ybba{}2!`,
		`{{ '<&>"' | e }}{{ 'a'|escape }}`: `&lt;&amp;&gt;&#34;a`,
		`{{ 'ab'.rjust(4) }}|{{ 'ab'.ljust(4, '.') }}|{{ 'ab'.center(5) }}|{{ '-7'.zfill(4) }}|{{ 'x'|center(4) }}|`:    `  ab|ab..|  ab |-007| x  |`,
		`{{ 'one two three'|truncate(9) }}|{{ 'one two three'|truncate(9, true, '..', 0) }}|{{ 'abcdef'|truncate(4) }}`: `one two three|one two..|abcdef`,
		`{{ range(5)|batch(2)|list }}{{ range(3)|batch(2, 0)|list }}`:                                                   `[[0, 1], [2, 3], [4]][[0, 1], [2, 0]]`,
		`{{ 1e20 }} {{ 2.5e-7 }} {{ 1e3 }}`: `1e+20 2.5e-07 1000.0`,
		"{{ 'a b c d'.rsplit(' ', 2) }}{{ 'x\ny'.splitlines() }}{{ 'abc'.find('z') }}{{ 'don\\'t'.title() }}{{ 'a1'.isalnum() }}":                                                        `['a b', 'c', 'd']['x', 'y']-1Don'TTrue`,
		`{{ {'b': 1, 'A': 2}|dictsort|map('last')|join }}{{ ({'b': 1, 'a': 0}|dictsort(by='value')|last)[0] }}{{ [3,1,2]|sort(reverse=true) }}{{ ['b','A']|sort(case_sensitive=true) }}`: `21b[3, 2, 1]['A', 'b']`,
		`{% for i in [1,1,2] %}{{ loop.changed(i) }}{{ loop.cycle('a','b') }}{% endfor %}`:                                                                                               `TrueaFalsebTruea`,
		`{{ 3 > 2 > 1 }}{{ 1 < 3 < 2 }}{{ 1 == 1 == 1.0 }}`:                                                                                                                              `TrueFalseTrue`,
		`{{ [{'x': [5]}].0.x.0 }}`: `5`,
		`{{ '%s|%5d|%-5s|%05.1f|%+d|%r|%%|%(a)s' % {'a': 1} if false else '%s|%5d|%-5s|%05.1f|%+d|%r|%%' % ('a', 42, 'b', 3.14159, 5, 'q') }}{{ '%(a)s' % {'a': 1} }}`: `a|   42|b    |003.1|+5|'q'|%1`,
	} {
		template, err := Parse(source)
		if err != nil {
			t.Errorf("%s: %v", source, err)
			continue
		}
		if text, err := template.Render(nil, Options{}); err != nil || text != want {
			t.Errorf("%s: %v, %q, want %q", source, err, text, want)
		}
	}
}
