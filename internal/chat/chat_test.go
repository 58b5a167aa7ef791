package chat

import (
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"
	"time"
)

// renderedCase is a rendering of testdata/cases.json, by testdata/render.py.
type renderedCase struct {
	Name        string            `json:"name"`
	Template    []string          `json:"template"`
	Messages    []Message         `json:"messages"`
	NeedsAnswer bool              `json:"needs_answer"`
	Special     map[string]string `json:"special"`
	Text        string            `json:"text"`
	Refused     string            `json:"refused"`
}

func readCases(t testing.TB) []renderedCase {
	t.Helper()
	data, err := os.ReadFile("testdata/cases.json")
	if err != nil {
		t.Fatal(err)
	}
	var list []renderedCase
	if err := json.Unmarshal(data, &list); err != nil {
		t.Fatal(err)
	}
	return list
}

func TestTextsAreJinjas(t *testing.T) {
	for _, c := range readCases(t) {
		template, err := Parse(strings.Join(c.Template, "\n"))
		if err != nil {
			t.Errorf("%s: %v", c.Name, err)
			continue
		}
		text, err := template.Render(c.Messages, Options{SpecialTokens: c.Special, NeedsAnswer: c.NeedsAnswer})
		var refused *RefusedError
		if errors.As(err, &refused) && refused.Message == c.Refused && c.Refused != "" {
			continue
		}
		if err != nil || text != c.Text {
			t.Errorf("%s: %v, text is\n%q, want\n%q", c.Name, err, text, c.Text)
		}
	}
}

func TestUnknownConstructsAreRefusedByName(t *testing.T) {
	for source, want := range map[string]string{
		"a\n{% macro f() %}{% endmacro %}":      "line 2: statement macro is not supported",
		"{% include 'x' %}":                     "statement include is not supported",
		"{{ x|safe }}":                          "filter safe is not supported",
		"{{ x is divisibleby(3) }}":             "test divisibleby is not supported",
		"{{ x.__class__() }}":                   "method __class__ is not supported",
		"{{ cycler(1) }}":                       "function cycler is not supported",
		"{{ x.y.z()() }}":                       "method z is not supported",
		"{{ {'a': 1} }}":                        "a literal dict is not supported",
		"{{ (1, 2) }}":                          "a tuple is not supported",
		"{{ 2 ** 3 }}":                          `"**" is not expected`,
		"{{ 1 < 2 < 3 }}":                       "a comparison of three values is not supported",
		"{% if a %}":                            "statement if has no endif",
		"{% for a in b %}{% endif %}":           "statement for has no endfor",
		"{% endfor %}":                          "endfor closes nothing",
		"{{ a":                                  "a tag has no }}",
		"{# a":                                  "a comment has no end",
		"{{ 'a }}":                              "a string has no end",
		`{{ '\q' }}`:                            `string: \q is not supported`,
		"{{ }}":                                 "a value is missing before the end of the tag",
		"{{ a[ }}":                              "a tag has no }}",
		"{{ 99999999999999999999 }}":            "value out of range",
		strings.Repeat("{% if a %}", 100):       "more than 64 nested constructs",
		"{{ " + strings.Repeat("(", 100):        "a tag has no }}",
		"{{ " + strings.Repeat("a.", 9000):      "more than 4096 words",
		strings.Repeat("a", maxTemplate+1):      "has 1048577 bytes, at most 1048576",
		"{{ " + strings.Repeat("not ", 100):     "a tag has no }}",
		"{{ " + strings.Repeat("-", 99) + "1}}": "more than 64 nested constructs",
	} {
		if _, err := Parse(source); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: error is %v, want %s", source, err, want)
		}
	}
}

func TestRenderingIsBounded(t *testing.T) {
	for _, source := range []string{
		"{% for a in range(1000000000) %}{% endfor %}",
		"{% set n = namespace(x='aaaaaaaa') %}{% for i in range(100) %}{% set n.x = n.x ~ n.x %}{% endfor %}",
		"{% for a in range(9999) %}{% for b in range(9999) %}x{% endfor %}{% endfor %}",
		"{% set n = namespace(x=[1]) %}{% for i in range(99) %}{% set n.x = n.x + n.x %}{% endfor %}",
		"{% set n = namespace(x='ab') %}{% for i in range(99) %}{% set n.x = n.x.replace('a', n.x) %}{% endfor %}",
		"{% set n = namespace(x=[1]) %}{% for i in range(9999999) %}{% set n.x = [n.x] %}{% endfor %}{{ n.x == n.x }}",
	} {
		template, err := Parse(source)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := template.Render(nil, Options{}); !errors.Is(err, errWork) {
			t.Errorf("%s: error is %v", source, err)
		}
	}
}

func TestErrorsNameValues(t *testing.T) {
	for source, want := range map[string]string{
		"{{ a.b }}":                         "b of an undefined value",
		"{{ messages }}":                    "a list as text is not supported without tojson",
		"{{ 1 + 'a' }}":                     "+: of a number and a string is not supported",
		"{{ 1 // 0 }}":                      "//: division by 0",
		"{{ none.strip() }}":                "strip: none has no such method",
		"{{ nothing.strip() }}":             "strip: the value is undefined",
		"{{ 'a'.replace('b') }}":            "replace: has 1 arguments, needs 2 to 2",
		"{{ 'a'.startswith(1) }}":           "startswith: argument 0 is a number, needs a string",
		"{% set a.b = 1 %}":                 "set: a is no namespace",
		"{% for a, b in [1] %}{% endfor %}": "a number has no elements",
		"{{ strftime_now('%Q') }}":          "strftime_now: %Q is not supported",
	} {
		template, err := Parse(source)
		if err != nil {
			t.Errorf("%s: %v", source, err)
			continue
		}
		if _, err := template.Render(nil, Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error is %v, want %s", source, err, want)
		}
	}
}

func TestDateIsTheCallers(t *testing.T) {
	template, err := Parse("{{ strftime_now('%d %b %Y') }}")
	if err != nil {
		t.Fatal(err)
	}
	text, err := template.Render(nil, Options{Date: time.Date(2026, 7, 4, 0, 0, 0, 0, time.UTC)})
	if err != nil || text != "04 Jul 2026" {
		t.Errorf("%q, %v", text, err)
	}
}

func FuzzTemplate(f *testing.F) {
	for _, c := range readCases(f) {
		f.Add(strings.Join(c.Template, "\n"))
	}
	messages := []Message{{Role: "user", Content: "a"}, {Role: "assistant", Content: "b"}}
	f.Fuzz(func(t *testing.T, source string) {
		template, err := Parse(source)
		if err != nil {
			return
		}
		first, err := template.Render(messages, Options{NeedsAnswer: true})
		second, again := template.Render(messages, Options{NeedsAnswer: true})
		if first != second || (err == nil) != (again == nil) {
			t.Errorf("%q and %q, %v and %v", first, second, err, again)
		}
	})
}
