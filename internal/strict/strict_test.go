package strict

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/internal/fault"
)

// part and whole are what tests read.
type part struct {
	Role string `json:"role"`
	Size int    `json:"size"`
}

type whole struct {
	part
	Parts []part          `json:"parts"`
	Rates map[string]bool `json:"rates"`
	Share *float64        `json:"share"`
}

func TestUnmarshalNamesWhatItRefuses(t *testing.T) {
	for text, want := range map[string]string{
		` {"role":"a","parts":[{"size":-1},null],"share":1e-3} `: "",
		`{"role":null,"rates":{"a":true}}`:                       "",
		`{"role":1}`:                                             "role: is number, needs a string",
		`{"parts":[{},{"size":"2"}]}`:                            "parts[1].size: is string, needs an integer in its range",
		`{"size":1.5}`:                                           "size: is number 1.5, needs an integer in its range",
		`{"size":99999999999999999999}`:                          "size: is number 99999999999999999999, needs an integer in its range",
		`{"share":1e999}`:                                        "share: is number 1e999, needs a number",
		`{"share":[]}`:                                           "share: is array, needs a number",
		`{"parts":{}}`:                                           "parts: is object, needs an array",
		`{"rates":{"a":0}}`:                                      "rates.a: is number, needs true or false",
		`[]`:                                                     "is array, needs an object",
		`{"parts":[{"rôle":"a"}]}`:                               `unknown field "parts[0].rôle"`,
		`{"Role":"a"}`:                                           `unknown field "Role"`,
		`{"7":"a"}`:                                              `unknown field "7"`,
		`{"rates":{"a":true,"2":0}}`:                             "rates.2: is number, needs true or false",
		`{"parts":[{},{"0":1}]}`:                                 `unknown field "parts[1].0"`,
		`{"size":1,"size":1}`:                                    "size: the key appears twice",
		`{"rates":{"a":true,"\u0061":true}}`:                     "rates.a: the key appears twice",
		`{"rates":{"1":true,"1":true}}`:                          "rates.1: the key appears twice",
		`{"rates":{"1":true,"2":"\ud83d"}}`:                      "rates.2: has half of a surrogate pair",
		`{"rates":{"1":true,"2":tru}}`:                           "rates.2: invalid character '}' in literal true (expecting 'e') at byte 26",
		"{\"role\":\"\xff\"}":                                    "is not UTF-8",
		`{"role":"\ud83d"}`:                                      "role: has half of a surrogate pair",
		`{"role":"\ud83d\u0041"}`:                                "role: has half of a surrogate pair",
		`{} {}`:                                                  "more follows the JSON value, which ends at byte 2 of 5",
		`{}}`:                                                    "more follows the JSON value, which ends at byte 2 of 3",
		`{"role"`:                                                "the JSON value ends early",
		``:                                                       "the JSON value ends early",
	} {
		var x whole
		err := Unmarshal([]byte(text), &x)
		if got := messageOf(err); got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
		known := UnmarshalKnown([]byte(text), &x)
		if isUnknown := errors.Is(err, fault.ErrUnknownField); isUnknown && known != nil || !isUnknown && messageOf(known) != want {
			t.Errorf("%s: known fields alone: %v", text, known)
		}
	}
}

// null leaves numbers, texts and structs as they are: a file that sets some of them to null asks for nothing.
func TestNullLeavesValuesAsTheyAre(t *testing.T) {
	share := 0.5
	for text, want := range map[string]whole{
		`null`: {part{"a", 2}, []part{{"b", 3}}, map[string]bool{"c": true}, &share},
		`{"role":null,"size":null,"parts":null,"rates":null,"share":null}`: {part: part{"a", 2}},
	} {
		x := whole{part{"a", 2}, []part{{"b", 3}}, map[string]bool{"c": true}, &share}
		if err := Unmarshal([]byte(text), &x); err != nil || !reflect.DeepEqual(x, want) {
			t.Errorf("%s: %+v, %v", text, x, err)
		}
	}
}

func TestPathsAreBounded(t *testing.T) {
	for _, depth := range []int{5000, 20000} { // the second is beyond the package's own bound
		if got := messageOf(Check([]byte(strings.Repeat("[", 30000)), depth)); !strings.Contains(got, "[0]…: ") || len(got) > 2*maxPath {
			t.Errorf("%.80s… has %d bytes", got, len(got))
		}
	}
}

func messageOf(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestCheckBoundsTheDepth(t *testing.T) {
	for text, want := range map[string]string{
		`[[1]] `: "", `7`: "", `{"a":{}}`: "",
		`[[[]]]`:            "[0][0]: nests deeper than 2",
		`{"a":[{"b":1}]}`:   "a[0]: nests deeper than 2",
		`[1,{"a":1,"a":2}]`: "[1].a: the key appears twice",
		`{"1":[{"2":{}}]}`:  "1[0]: nests deeper than 2",
		`[] 1`:              "more follows the JSON value, which ends at byte 2 of 4",
		` `:                 "the JSON value ends early",
		`[`:                 "the JSON value ends early",
	} {
		if got := messageOf(Check([]byte(text), 2)); got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}

func TestHasHalfPair(t *testing.T) {
	for text, want := range map[string]bool{
		`"a"`: false, `"\ud83d\ude00"`: false, `"\\ud83d"`: false, `"\ufffd \u00e9"`: false,
		`"\ud83d"`: true, `"\ude00\ud83d"`: true, `"\ud83d\u0041"`: true, `"\\\uD83D"`: true, `"\ud83d\\ude00"`: true,
	} {
		if got := HasHalfPair([]byte(text)); got != want {
			t.Errorf("%s has half a pair: %t, want %t", text, got, want)
		}
	}
}
