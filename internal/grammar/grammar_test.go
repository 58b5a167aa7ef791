package grammar

import (
	"encoding/json"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// byteVocab is a vocabulary of all bytes.
var byteVocab = NewVocab(256, func(dst []byte, id int32) ([]byte, error) { return append(dst, byte(id)), nil })

// accepts reports whether a grammar accepts a whole text.
func accepts(t *testing.T, g *Grammar, text string) bool {
	t.Helper()
	m := g.Match(byteVocab)
	for _, c := range []byte(text) {
		if err := m.Accept(int32(c)); errors.Is(err, errDead) {
			return false
		} else if err != nil {
			t.Fatal(err)
		}
	}
	_, isEnd, err := m.Allowed()
	if err != nil {
		t.Fatal(err)
	}
	return isEnd
}

const person = `{"type":"object","properties":{"name":{"type":"string"},"age":{"type":"integer","minimum":0,"maximum":130},"tags":{"type":"array","items":{"enum":["a","b"]}}},"required":["name"],"additionalProperties":false}`

func TestGrammarsAcceptValidValues(t *testing.T) {
	for _, c := range []struct {
		name, schema string
		good, bad    []string
	}{
		{"object", person,
			[]string{`{"name":"x"}`, `{"name": "\u00e9é\n", "age": 130, "tags": ["a", "b"]}`, "{\n  \"name\": \"x\",\n  \"age\": 0\n}", `{"name":"","tags":[]}`},
			[]string{`{}`, `{"age":1}`, `{"age":1,"name":"x"}`, `{"name":"x","age":131}`, `{"name":"x","age":-1}`, `{"name":"x","age":01}`, `{"name":"x","tags":["c"]}`, `{"name":"x",}`, `{"name":"x","name":"y"}`, `{"name":"x"}}`, `{"name":"\x"}`, "{\"name\":\"\x01\"}", "{\"name\":\"\xff\"}", `{"name":"\ud800"}`}},
		{"nothing required", `{"type":"object","properties":{"a":{"type":"null"},"b":{"type":"boolean"}}}`,
			[]string{`{}`, `{ }`, `{"a":null}`, `{"b":true}`, `{"a":null, "b":false}`}, []string{`{"b":true,"a":null}`, `{,"b":true}`, `{"a":null "b":true}`, ``}},
		{"the second required", `{"type":"object","properties":{"a":{"type":"null"},"b":{"type":"null"},"c":{"type":"null"}},"required":["b"]}`,
			[]string{`{"b":null}`, `{"a":null,"b":null}`, `{"b":null,"c":null}`, `{"a":null,"b":null,"c":null}`}, []string{`{}`, `{"a":null}`, `{"c":null}`, `{"a":null,"c":null}`}},
		{"dictionary", `{"type":"object","additionalProperties":{"type":"integer"},"minProperties":1,"maxProperties":2}`,
			[]string{`{"x":1}`, `{"x":1, "y":-2}`}, []string{`{}`, `{"x":"1"}`, `{"x":1,"y":2,"z":3}`}},
		{"array", `{"type":"array","items":{"type":"number"},"minItems":1,"maxItems":3}`,
			[]string{`[1]`, `[ 1.5, -0.25e+10,0 ]`}, []string{`[]`, `[1,2,3,4]`, `[.5]`, `[1.]`, `[+1]`}},
		{"tuple", `{"prefixItems":[{"type":"string"},{"type":"boolean"}],"minItems":2,"maxItems":2}`, []string{`["a",true]`}, []string{`["a"]`, `["a",true,1]`}},
		{"length", `{"type":"string","minLength":2,"maxLength":3}`, []string{`"ab"`, `"éé"`, `"\n\u0041x"`}, []string{`"a"`, `"abcd"`}},
		{"formats", `{"anyOf":[{"type":"string","format":"date-time"},{"type":"string","format":"uuid"}]}`,
			[]string{`"2026-11-28T02:09:59Z"`, `"00000000-0000-0000-0000-00000000000f"`}, []string{`"2026-13-01T00:00:00Z"`, `"2026-11-28"`}},
		{"types", `{"type":["integer","null"]}`, []string{`12`, `null`, `-3`}, []string{`1.5`, `"1"`}},
		{"nullable", `{"type":"string","nullable":true}`, []string{`"a"`, `null`}, []string{`1`}},
		{"constants", `{"enum":[1,"a",{"b":[]},null]}`, []string{`1`, `"a"`, `{"b":[]}`, `null`}, []string{`2`, `"b"`}},
		{"const", `{"const":"only","type":"string"}`, []string{`"only"`}, []string{`"other"`}},
		{"recursion", `{"$defs":{"node":{"type":"object","properties":{"next":{"anyOf":[{"$ref":"#/$defs/node"},{"type":"null"}]}},"required":["next"]}},"$ref":"#/$defs/node"}`,
			[]string{`{"next":null}`, `{"next":{"next":{"next":null}}}`}, []string{`{"next":1}`, `{}`}},
		{"all of one", `{"allOf":[{"type":"boolean"}]}`, []string{`true`}, []string{`1`}},
		{"anything", `{}`, []string{`1`, `"a"`, `[{"a":[true]}]`, strings.Repeat("[", 50) + strings.Repeat("]", 50)}, []string{``, `nul`, strings.Repeat("[", 500) + strings.Repeat("]", 500)}},
		{"exclusive bounds", `{"type":"integer","exclusiveMinimum":-13,"exclusiveMaximum":1001}`, []string{`-12`, `0`, `1000`, `999`, `-9`}, []string{`-13`, `1001`, `-0`, `2000`}},
	} {
		g, err := New([]Piece{{Schema: json.RawMessage(c.schema), Path: "schema"}})
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		for _, text := range c.good {
			if !accepts(t, g, text) {
				t.Errorf("%s: %s is refused", c.name, text)
			}
		}
		for _, text := range c.bad {
			if accepts(t, g, text) {
				t.Errorf("%s: %s is accepted", c.name, text)
			}
		}
	}
}

func TestIntegersAreBetweenTheirBounds(t *testing.T) {
	for _, bounds := range [][2]int64{{-120, 45}, {7, 7}, {1, 100}, {-5, -3}, {99, 1001}, {-10, 0}} {
		b := newBuilder()
		g, err := b.finish(b.between(bounds[0], bounds[1]))
		if err != nil {
			t.Fatal(err)
		}
		for x := int64(-1200); x <= 1200; x++ {
			text, _ := json.Marshal(x)
			if got, want := accepts(t, g, string(text)), bounds[0] <= x && x <= bounds[1]; got != want {
				t.Errorf("%d of %v: accepted is %v", x, bounds, got)
			}
		}
	}
}

// Constructs outside the subset are refused by their path.
func TestSchemasAreRefusedByPath(t *testing.T) {
	for schema, want := range map[string]string{
		`[]`: "schema: is [], needs a schema",
		`{"type":"object","properties":{"a":{"type":"array","items":{"type":"string","pattern":"x"}}}}`: "schema.properties.a.items.pattern: is not supported here",
		`{"type":"strin"}`:                                        `schema.type: "strin" is no type`,
		`{"type":"string","format":"ipv4"}`:                       `schema.format: "ipv4" is not supported; date, time, date-time and uuid are`,
		`{"not":{"type":"string"}}`:                               "schema.not: is not supported here",
		`{"anyOf":[{"type":"number","minimum":3}]}`:               "schema.anyOf[0].minimum: 3 of numbers that are no integers is not supported; minimum 0 is",
		`{"$ref":"#/$defs/x"}`:                                    `schema.$ref: there is no "#/$defs/x"`,
		`{"$ref":"http://example.org/x"}`:                         `schema.$ref: "http://example.org/x" is not within the schema`,
		`{"$defs":{"x":{"$ref":"#/$defs/x"}},"$ref":"#/$defs/x"}`: "schema: a definition is nothing but itself",
		`{"type":"object","properties":{},"required":["a"]}`:      `schema.required: "a" is none of properties`,
		`{"type":"array","minItems":3,"maxItems":2}`:              "schema.minItems: 3 is above maxItems, which is 2",
		`{"type":"string","minLength":70000}`:                     "schema.minLength: 70000 is not between 0 and 65536",
		`{"type":"string","maxLength":60000}`:                     "schema: needs more than 65536 states",
		`{"type":"integer","minimum":5,"maximum":4}`:              "schema.minimum: 5 is above 4: no integer is possible",
		`{"enum":[]}`: "schema.enum: has no values",
		strings.Repeat(`{"type":"array","items":`, 70) + `{}` + strings.Repeat("}", 70): "schema" + strings.Repeat(".items", 65) + ": is nested more than 64 deep",
	} {
		_, err := New([]Piece{{Schema: json.RawMessage(schema), Path: "schema"}})
		var known *SchemaError
		if !errors.As(err, &known) || err.Error() != want {
			t.Errorf("%.80s: error is %v, want %s", schema, err, want)
		}
	}
}

// walk draws tokens that are allowed until the text ends, and returns it. After a number of tokens it prefers the ones
// that close something.
func walk(t *testing.T, g *Grammar, v *Vocab, seed uint64) string {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 1))
	m := g.Match(v)
	var text []byte
	for n := 0; n < 4000; n++ {
		mask, isEnd, err := m.Allowed()
		if err != nil {
			t.Fatal(err)
		}
		var list []int32
		for id := range int32(v.size) {
			if mask[id/64]>>(id%64)&1 == 1 {
				list = append(list, id)
			}
		}
		if isEnd && (len(list) == 0 || m.IsComplete() || n > 60 || r.IntN(4) == 0) {
			return string(text)
		}
		if len(list) == 0 {
			t.Fatalf("%q cannot go on", text)
		}
		id := list[r.IntN(len(list))]
		if n > 60 {
			for _, closing := range []string{"]", "}", `"`} {
				for _, x := range list {
					if string(v.byID[x]) == closing {
						id = x
					}
				}
			}
		}
		text = append(text, v.byID[id]...)
		if err := m.Accept(id); err != nil {
			t.Fatal(err)
		}
	}
	t.Fatalf("%.200q does not end", text)
	return ""
}

// Whatever is drawn of tokens that are allowed is JSON, also with tokens of several bytes and parts of characters.
func TestDrawnTextsAreJSON(t *testing.T) {
	words := []string{`{"`, `":`, `", "`, `"},`, `"}`, "na", "me", "name", `"name"`, `{"name": "`, "é"[:1], "é"[1:], "true", "tru", "[[", "]]", "12", "-", ".5", "\\u", "00e9", "\n", "  "}
	v := NewVocab(256+len(words)+2, func(dst []byte, id int32) ([]byte, error) {
		switch {
		case id < 256:
			return append(dst, byte(id)), nil
		case int(id) < 256+len(words):
			return append(dst, words[id-256]...), nil
		}
		return dst, nil // a special token
	})
	schema, err := New([]Piece{{Schema: json.RawMessage(person), Path: "schema"}})
	if err != nil {
		t.Fatal(err)
	}
	for seed := range uint64(40) {
		if text := walk(t, Object(), v, seed); !json.Valid([]byte(text)) || text[0] != '{' {
			t.Errorf("%q is no object", text)
		}
		text := walk(t, schema, v, seed)
		var x struct {
			Name *string
			Age  *int
			Tags []string
		}
		d := json.NewDecoder(strings.NewReader(text))
		d.DisallowUnknownFields()
		if err := d.Decode(&x); err != nil || x.Name == nil || x.Age != nil && (*x.Age < 0 || *x.Age > 130) || slices.ContainsFunc(x.Tags, func(s string) bool { return s != "a" && s != "b" }) {
			t.Errorf("%q does not fit its schema: %v", text, err)
		}
	}
}

// Texts around values are kept, and a choice is open until a byte decides.
func TestPiecesFollowEachOther(t *testing.T) {
	number := json.RawMessage(`{"type":"integer"}`)
	g, err := New([]Piece{{Text: "<call>f("}, {Schema: number}, {Text: ")"}}, []Piece{{Text: "<call>g("}, {Schema: json.RawMessage(`{"type":"null"}`)}, {Text: ")"}})
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]bool{"<call>f(12)": true, "<call>g(null)": true, "<call>g(12)": false, "<call>f(12": false} {
		if accepts(t, g, text) != want {
			t.Errorf("%s: accepted is %v", text, !want)
		}
	}
}

// A long answer does not grow the matcher, and a token inside a string costs no search.
func TestMatchersStayBounded(t *testing.T) {
	g, err := New([]Piece{{Schema: json.RawMessage(`{"type":"array","items":{"type":"string","maxLength":2000}}`), Path: "schema"}})
	if err != nil {
		t.Fatal(err)
	}
	m := g.Match(byteVocab)
	for i := range 40000 {
		text := "x"
		switch i % 1500 {
		case 0:
			text = `","`
			if i == 0 {
				text = `["`
			}
		}
		for _, c := range []byte(text) {
			if err := m.Accept(int32(c)); err != nil {
				t.Fatal(err)
			}
		}
		if i%100 == 0 {
			if _, _, err := m.Allowed(); err != nil {
				t.Fatal(err)
			}
		}
		if len(m.sets) > 2*maxSets || len(m.frames) > 8*maxSets {
			t.Fatalf("%d sets, %d frames after %d tokens", len(m.sets), len(m.frames), i)
		}
	}
	m = Object().Match(byteVocab)
	for _, c := range []byte(`{"abc`) {
		if err := m.Accept(int32(c)); err != nil {
			t.Fatal(err)
		}
	}
	mask, _, _ := m.Allowed()
	if err := m.Accept('d'); err != nil {
		t.Fatal(err)
	}
	if again, _, _ := m.Allowed(); &again[0] != &mask[0] {
		t.Error("the tokens of a string are searched for again")
	}
}

func FuzzSchema(f *testing.F) {
	f.Add([]byte(person), uint64(1))
	f.Add([]byte(`{"$defs":{"a":{"anyOf":[{"$ref":"#/$defs/a"},{"type":"null"}]}},"$ref":"#/$defs/a"}`), uint64(2))
	f.Add([]byte(`{"type":["array","string"],"items":{"type":"integer","minimum":-3},"minLength":3}`), uint64(3))
	f.Fuzz(func(t *testing.T, schema []byte, seed uint64) {
		g, err := New([]Piece{{Schema: schema, Path: "schema"}})
		if err != nil {
			return
		}
		m := g.Match(byteVocab)
		r := rand.New(rand.NewPCG(seed, 1))
		var text []byte
		for range 200 {
			mask, isEnd, err := m.Allowed()
			if err != nil {
				return
			}
			if isEnd && !json.Valid(text) {
				t.Fatalf("%q is accepted", text)
			}
			var list []byte
			for id := range 256 {
				if mask[id/64]>>(id%64)&1 == 1 {
					list = append(list, byte(id))
				}
			}
			if len(list) == 0 {
				return
			}
			c := list[r.IntN(len(list))]
			text = append(text, c)
			if err := m.Accept(int32(c)); err != nil {
				return
			}
		}
	})
}
