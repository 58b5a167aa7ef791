package chat

import (
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/farfield-ml/farfield/internal/check"
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
	t.Parallel()
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
	t.Parallel()
	for source, want := range map[string]string{
		"a\n{% call 1 %}{% endcall %}":           "line 2: statement call needs a call of a macro",
		"{% with a %}{% endwith %}":              "\"=\" is missing",
		"{% filter upper %}":                     "statement filter has no endfilter",
		"{% include 'x' %}":                      "statement include is not supported",
		"{{ x.y()() }}":                          "a call of a value without a name is not supported",
		"{% macro f(a b) %}{% endmacro %}":       "\")\" is missing before \"b\"",
		"{% macro f() %}":                        "statement macro has no endmacro",
		"{{ {1 2} }}":                            "\":\" is missing before 2",
		"{% if a %}":                             "statement if has no endif",
		"{% for a in b %}{% endif %}":            "statement for has no endfor",
		"{% endfor %}":                           "endfor closes nothing",
		"{{ a":                                   "a tag has no }}",
		"{# a":                                   "a comment has no end",
		"{{ 'a }}":                               "a string has no end",
		`{{ '\q' }}`:                             `string: \q is not supported`,
		"{{ }}":                                  "a value is missing before the end of the tag",
		"{{ a[ }}":                               "a tag has no }}",
		"{{ 99999999999999999999 }}":             "value out of range",
		"{{ " + strings.Repeat("a", 257) + " }}": "a name has 257 bytes, at most 256",
		strings.Repeat("{% if a %}", 100):        "more than 64 nested constructs",
		"{{ " + strings.Repeat("(", 100):         "a tag has no }}",
		"{{ " + strings.Repeat("a.", 9000):       "more than 4096 words",
		strings.Repeat("a", maxTemplate+1):       "has 1048577 bytes, at most 1048576",
		"{{ " + strings.Repeat("not ", 100):      "a tag has no }}",
		"{{ " + strings.Repeat("-", 99) + "1}}":  "more than 64 nested constructs",
	} {
		if _, err := Parse(source); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: error is %v, want %s", source, err, want)
		}
	}
}

func TestRenderingIsBounded(t *testing.T) {
	t.Parallel()
	const long = "{% set n = namespace(k='k') %}{% for i in range(17) %}{% set n.k = n.k ~ n.k %}{% endfor %}"
	for _, source := range []string{
		"{% for a in range(1000000000) %}{% endfor %}",
		"{% set n = namespace(x='aaaaaaaa') %}{% for i in range(100) %}{% set n.x = n.x ~ n.x %}{% endfor %}",
		"{% for a in range(9999) %}{% for b in range(9999) %}x{% endfor %}{% endfor %}",
		"{% set n = namespace(x=[1]) %}{% for i in range(99) %}{% set n.x = n.x + n.x %}{% endfor %}",
		"{% set n = namespace(x='ab') %}{% for i in range(99) %}{% set n.x = n.x.replace('a', n.x) %}{% endfor %}",
		"{% set n = namespace(x=[1]) %}{% for i in range(9999999) %}{% set n.x = [n.x] %}{% endfor %}{{ n.x == n.x }}",
		"{% set n = namespace(x=1) %}{% for i in range(20) %}{% set n.x = {'a': n.x, 'b': n.x} %}{% endfor %}{{ n.x == n.x }}",
		long + "{% set n.l = [{n.k: 1}] %}{% for i in range(12) %}{% set n.l = n.l + n.l %}{% endfor %}{% set t = n.l|tojson %}",
		long + "{% for i in range(9999) %}{% set d = {n.k: 1} %}{% endfor %}",
		long + "{% set d = {n.k: 1} %}{% for i in range(9999) %}{{ d[n.k] }}{% endfor %}",
		long + "{% set d = {n.k: 1} %}{% for i in range(9999) %}{{ d.get(n.k) }}{% endfor %}",
		long + "{% set d = {n.k: 1} %}{% for i in range(9999) %}{% if n.k in d %}{% endif %}{% endfor %}",
		long + "{% set d = {n.k: 1} %}{% for i in range(9999) %}{% if d == d %}{% endif %}{% endfor %}",
		long + "{% set n.l = [n.k] %}{% for i in range(12) %}{% set n.l = n.l + n.l %}{% endfor %}{{ n.l|map(attribute=0)|first }}",
		long + "{{ range(64)|map(attribute=n.k.replace('k', '.'), default=1)|first }}",
		"{% set n = namespace(k='%d') %}{% for i in range(20) %}{% set n.k = n.k ~ n.k %}{% endfor %}{{ strftime_now(n.k) }}",
		"{% set n = namespace(k='é') %}{% for i in range(16) %}{% set n.k = n.k ~ n.k %}{% endfor %}{{ n.k.strip('x' ~ n.k) }}",
		"{{ 'ab' * 1000000000 }}",
		"{{ '%60000000d' % 1 }}",
		"{{ range(100000)|unique|list }}",
		"{{ ('a\n' * 1000000)|indent(1000) }}",
		"{{ range(1000000)|map('string')|sort|join }}",
		"{% set n = namespace(x=[1]) %}{% for i in range(40) %}{% set n.x = [n.x, n.x] %}{% endfor %}{{ n.x }}",
		"{% set n = namespace(x=[1]) %}{% for i in range(40) %}{% set n.x = [n.x, n.x] %}{% endfor %}{{ n.x|tojson(indent=64) }}",
		"{% macro f() %}{{ caller() }}{{ caller() }}{% endmacro %}{% set n = namespace(x='a') %}{% for i in range(40) %}{% set n.x %}{% call f() %}{{ n.x }}{% endcall %}{% endset %}{% endfor %}",
	} {
		template, err := Parse(source)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := template.Render(nil, Options{}); !errors.Is(err, errWork) && !errors.Is(err, errMemory) {
			t.Errorf("%s: error is %v", source, err)
		}
	}
}

// Whatever grows is refused before it has grown: a rendering allocates no more than it counts.
func TestMemoryIsSpentBeforeItIsTaken(t *testing.T) {
	const (
		memory, work = maxMemory / 8, maxWork / 8 // that are left

		space = "{% set n = namespace(x='a ', l=[1], d={}, s='') %}"
		text  = space + "{% for i in range(19) %}{% set n.x = n.x ~ n.x %}{% endfor %}" // 1 MiB
		short = space + "{% for i in range(15) %}{% set n.x = n.x ~ n.x %}{% endfor %}" // 64 KiB
		list  = space + "{% for i in range(15) %}{% set n.l = n.l + n.l %}{% endfor %}" // of 32 Ki numbers
		texts = list + "{% set n.l = n.l|map('string')|list %}"
		many  = "{% for i in range(1000000) %}"
	)
	for source, reason := range map[string]string{
		space + many + "{% set n.x = n.x ~ n.x %}{% endfor %}":                                                          "~",
		space + many + "{% set n.x = n.x + n.x %}{% endfor %}":                                                          "+ of strings",
		space + many + "{% set n.l = n.l + n.l %}{% endfor %}":                                                          "+ of lists",
		space + many + "{% set n.l = n.l + [i] %}{% endfor %}":                                                          "a longer list",
		space + many + "{% set n.l = [n.l, n.l, n.l, n.l] %}{% endfor %}":                                               "a list",
		space + many + "{% set n.d = {'a': n.d, 'b': i} %}{% endfor %}":                                                 "a mapping",
		space + many + "{% set n.d = namespace(a=n.d) %}{% endfor %}":                                                   "a namespace",
		space + many + "{% set n.l = [n.l, loop] %}{% endfor %}":                                                        "loop",
		space + many + "{{ 'a text of some bytes' }}{% endfor %}":                                                       "output",
		space + many + "a text of some bytes{% endfor %}":                                                               "text",
		text + "{% for i in range(99) %}{{ n.x }}{% endfor %}":                                                          "long output",
		text + "{% for i in range(9) %}{% set a %}{{ n.x }}{% endset %}{% endfor %}":                                    "a captured text",
		text + "{% macro f(a) %}{{ a }}{{ a }}{% endmacro %}{{ f(f(n.x)) }}":                                            "a macro",
		text + "{% set a = n.x.split() %}":                                                                              "split",
		text + "{% set a = n.x.split(' ') %}":                                                                           "split by a text",
		text + "{% set a = n.x.split(' ', 4000000) %}":                                                                  "split with a limit",
		text + "{% set a = n.x|list %}":                                                                                 "characters",
		text + "{% for c in n.x %}{% endfor %}":                                                                         "a loop over characters",
		text + "{% for i in range(9) %}{% set a = n.x[::-1] %}{% endfor %}":                                             "a slice",
		text + "{% for i in range(9) %}{% set a = n.x|reverse %}{% endfor %}":                                           "reverse",
		text + "{% for i in range(9) %}{% set a = n.x.upper() %}{% endfor %}":                                           "upper",
		text + "{% for i in range(9) %}{% set a = n.x.replace('a', 'bcd') %}{% endfor %}":                               "replace",
		text + "{% for i in range(9) %}{% set a = n.x.replace('', 'bcd') %}{% endfor %}":                                "replace of nothing",
		text + "{% for i in range(9) %}{% set a = n.x|tojson %}{% endfor %}":                                            "tojson",
		short + "{% set a = n.x.replace('a', '\x01')|tojson %}{% set a = n.x.replace('a', n.x) %}":                      "replace by a long text",
		short + "{% set a = n.x.join(range(999)) %}":                                                                    "join by a long text",
		texts + "{% for i in range(99) %}{% set a = n.l|join(',') %}{% endfor %}":                                       "join",
		texts + "{% for i in range(99) %}{% set a = n.l|tojson %}{% endfor %}":                                          "tojson of a list",
		texts + "{% for i in range(99) %}{% set a = n.l|map('upper')|list %}{% endfor %}":                               "map",
		list + "{% for i in range(99) %}{% set a = n.l|select|list %}{% endfor %}":                                      "select",
		list + "{% for i in range(99) %}{% set a = n.l[::-1] %}{% endfor %}":                                            "a slice of a list",
		list + "{% for i in range(99) %}{% set a = n.l|reverse|list %}{% endfor %}":                                     "reverse of a list",
		list + "{% for i in range(99) %}{% for x in n.l if x %}{% break %}{% endfor %}{% endfor %}":                     "a loop with a test",
		"{% set a = range(1, 9223372036854775807) %}":                                                                   "range",
		"{% set a = range(-9223372036854775807, 9223372036854775807, 3) %}":                                             "range across 0",
		short + "{{ strftime_now(n.x.replace('a', '%d%B')) }}{{ strftime_now(n.x) }}":                                   "strftime_now",
		short + "{% for i in range(9) %}{{ [[1]]|map(attribute=n.x.replace('a', '0.'), default=1)|first }}{% endfor %}": "a path",
	} {
		template, err := Parse(source)
		if err != nil {
			t.Fatalf("%s: %v", reason, err)
		}
		told := 0
		n := check.AllocatedBytes(func() {
			_, err = template.render(&renderer{
				work: maxWork - work, memory: maxMemory - memory, reserved: maxMemory - memory,
				reserve: func(n int) error { told += n; return nil },
			}, nil, Options{})
		})
		if !errors.Is(err, errMemory) && !errors.Is(err, errWork) {
			t.Errorf("%s: error is %v", reason, err)
		}
		if n > memory+memory/4 || told > memory+reserveBytes {
			t.Errorf("%s: %d bytes are allocated and %d reserved, at most %d are counted", reason, n, told, memory)
		}
	}
}

func TestMemoryThatNobodyHasEndsRendering(t *testing.T) {
	t.Parallel()
	template, err := Parse("{% set n = namespace(x='a') %}{% for i in range(26) %}{% set n.x = n.x ~ n.x %}{% endfor %}")
	if err != nil {
		t.Fatal(err)
	}
	full := errors.New("full")
	room := 4 << 20
	_, err = template.Render(nil, Options{Reserve: func(n int) error {
		if room -= n; room < 0 {
			return full
		}
		return nil
	}})
	if !errors.Is(err, full) || err.Error() != "full" {
		t.Errorf("error is %v", err)
	}
}

// Whole numbers are Python's, or an error that names the operator and the line.
func TestIntegersDoNotWrap(t *testing.T) {
	t.Parallel()
	const most, least = "9223372036854775807", "(-9223372036854775807 - 1)"
	for source, want := range map[string]string{
		"{{ " + most + " + 1 }}":                                "line 1: +: of 9223372036854775807 and 1 is beyond an integer of 64 bits",
		"a\n{{ " + least + " - 1 }}":                            "line 2: -: of -9223372036854775808 and 1 is beyond",
		"{{ 0 - " + least + " }}":                               "-: of 0 and -9223372036854775808 is beyond",
		"{{ -" + least + " }}":                                  "-: of 0 and -9223372036854775808 is beyond",
		"{{ 4294967296 * 2147483648 }}":                         "*: of 4294967296 and 2147483648 is beyond",
		"{{ 4294967296 * -2147483649 }}":                        "*: of 4294967296 and -2147483649 is beyond",
		"{{ " + least + " * -1 }}":                              "*: of -9223372036854775808 and -1 is beyond",
		"{{ " + least + " // -1 }}":                             "//: of -9223372036854775808 and -1 is beyond",
		"{% if 1 %}\n\n{{ 1 // 0 }}{% endif %}":                 "line 3: //: division by 0",
		"{% macro f() %}\n{{ 1 % 0 }}{% endmacro %}\n{{ f() }}": "chat template: line 2: %: division by 0",
	} {
		template, err := Parse(source)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := template.Render(nil, Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error is %v, want %s", source, err, want)
		}
	}
	for source, want := range map[string]string{
		"{{ 4294967296 * -2147483648 }}":                                                                                                 "-9223372036854775808",
		"{{ " + least + " * 1 }},{{ 1 * " + least + " }},{{ 0 * " + least + " }}":                                                        "-9223372036854775808,-9223372036854775808,0",
		"{{ " + least + " % -1 }},{{ " + least + " // 2 }},{{ -7 // 2 }},{{ -7 % 2 }}":                                                   "0,-4611686018427387904,-4,1",
		"{{ " + most + " + " + least + " }},{{ " + most + " - 1 }},{{ 1 + -1 }}":                                                         "-1,9223372036854775806,0",
		"{{ 9007199254740993 == 9007199254740992 }}{{ 9007199254740993 > 9007199254740992 }}{{ 9007199254740993 > 9007199254740992.0 }}": "FalseTrueTrue",
		"{{ 9007199254740993 / 9007199254740993 }},{{ 9223372036854775807 / 3 }},{{ 7 / 2 }}":                                            "1.0,3.0744573456182584e+18,3.5",
		"{{ range(9223372036854775800, 9223372036854775807, 3)|join(',') }}":                                                             "9223372036854775800,9223372036854775803,9223372036854775806",
		"{{ range(5, 0, " + least + ")|join(',') }},{{ range(3, 9, " + most + ")|join(',') }}":                                           "5,3",
		"{{ 'abc'[::" + least + "] }}{{ [1, 2, 3][::" + most + "]|join }}{{ 'abc'[" + least + ":] }}":                                    "c1abc",
	} {
		template, err := Parse(source)
		if err != nil {
			t.Fatal(err)
		}
		text, err := template.Render(nil, Options{})
		if err != nil || text != want {
			t.Errorf("%s: %q, %v, want %q", source, text, err, want)
		}
	}
}

func TestErrorsNameValues(t *testing.T) {
	t.Parallel()
	for source, want := range map[string]string{
		"{{ a.b }}":                                       "b of an undefined value",
		"{{ 1 + 'a' }}":                                   "+: of a number and a string is not supported",
		"{{ 1 // 0 }}":                                    "//: division by 0",
		"{{ none.strip() }}":                              "strip: none has no such method",
		"{{ nothing.strip() }}":                           "strip: the value is undefined",
		"{{ 'a'.replace('b') }}":                          "replace: has 1 arguments, needs 2 to 2",
		"{{ 'a'.startswith(1) }}":                         "startswith: argument 0 is a number, needs a string",
		"{% set a.b = 1 %}":                               "set: a is no namespace",
		"{% for a, b in [1] %}{% endfor %}":               "a number has no elements",
		"{{ strftime_now('%Q') }}":                        "strftime_now: %Q is not supported",
		"{{ x|xmlattr }}":                                 "filter xmlattr is not supported",
		"{{ x.__class__() }}":                             "method __class__ is not supported",
		"{{ cycler(1) }}":                                 "function cycler is not supported",
		"{{ {1: 2} }}":                                    "a mapping by a number is not supported",
		"{{ [1]|map('pprint') }}":                         "filter pprint is not supported",
		"{{ [1]|map('replace', neu='a', old='b') }}":      "map: replace: argument neu by its name is not supported",
		"{{ {'a': 1}|tojson(indent=99) }}":                "tojson: indent is a number, needs to be a text or a number up to 64",
		"{{ [1, 'a']|sort }}":                             "sort: <: a string and a number have no order",
		"{{ '%d' % 'a' }}":                                "%d: of a string is not supported",
		"{{ '%d %d' % [1] }}":                             "%: there are not enough values",
		"\n{% set a, b = [1] %}":                          "line 2: set: the value has 1 parts, there are 2 names",
		"{{ 9 ** 99 }}":                                   "**: of 9 and 99 is beyond an integer of 64 bits",
		"{{ 'a'|indent(99999999) }}":                      "indent: the width is no number or text",
		"{{ [1]|map(attribute='a', b=1) }}":               "map: argument b is not supported",
		"{{ [1]|map(attribute=none) }}":                   "map: an attribute by none is not supported",
		"{{ [1]|map('string')|length }}":                  "length: of a generator is not supported",
		"{{ ([1]|select)[1:] }}":                          "slice: of a generator is not supported",
		"{{ nothing[[1]] }}":                              "a list of an undefined value",
		"{{ [1]|select('odd', 1) }}":                      "select: needs no arguments",
		"{{ messages|selectattr }}":                       "selectattr: needs an attribute",
		"{% break %}":                                     "break is outside a loop",
		"{% macro f(a) %}{% endmacro %}{{ f(1, b=2) }}":   "f: has 1 arguments, and no \"b\" for argument 1",
		"{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}": "has more than 64 nested calls",
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

func TestExpressionsAreJinjas(t *testing.T) {
	t.Parallel()
	for source, want := range map[string]string{
		"{% macro f(a, b='x') %}<{{ a }}{{ b }}>{% endmacro %}{{ f(1) }}{{ f(b=2, a=3) }}":                                                    "<1x><32>",
		"{% set n = namespace(x=1) %}{% macro f() %}{% set n.x = n.x + 1 %}{{ n.x }}{% endmacro %}{% for i in [1, 2] %}{{ f() }}{% endfor %}": "23",
		"{% for i in range(5) %}{% if i == 1 %}{% continue %}{% endif %}{% if i == 3 %}{% break %}{% endif %}{{ i }}{% endfor %}":             "02",
		"{{ messages|selectattr('role', 'equalto', 'user')|list|length }}":                                                                    "2",
		"{{ messages|rejectattr('name', 'defined')|map(attribute='content')|join(',') }}":                                                     "a,b,c",
		"{{ ['', 'b']|reject('equalto', '')|join }}{{ [0, 2]|select|first }}":                                                                 "b2",
		"{{ ['a', 'b']|map('upper')|join }}{{ ['ab']|map('replace', 'a', 'c')|join }}":                                                        "ABcb",
		"{{ {'a': 1, 'b': [2]}.b[0] }}{{ (1, 2)|join(',') }}{{ 1 is in([1]) }}":                                                               "21,2True",
		"{{ -3 is odd }}{{ -3|string|length }}{{ -2 * 3 }}{{ --3 is odd }}":                                                                   "True2-6True",
		"{{ messages|map(attribute='name', default='x')|join }}{{ [{'a': {'b': [1, 2]}}]|map(attribute='a.b.1')|join }}":                      "xxx2",
		"{{ [{'a': {'b': 2}}, {'a': {}}]|selectattr('a.b')|list|length }}{{ [{}]|map(default=3, attribute='a.b')|first }}":                    "13",
		"{% if messages|selectattr('role', 'equalto', 'system') %}1{% endif %}{{ 1 if []|reverse else 0 }}{{ 1 if []|select|list else 0 }}":   "110",
		"{% for f in [[]|map('upper'), []|reject, {}|items, {}.items(), []|select|reverse, ''|reverse] %}{{ 1 if f else 0 }}{% endfor %}":     "111000",
		"{% set x = [1, 2, 3]|map('string') %}{{ x|first }},{{ x|join }},{{ x|join }}{{ x[0] }}{{ 'abc'|reverse }}":                           "1,23,cba",
		"{{ [1]|select is iterable }}{{ [1]|select is sequence }}{% for x in [3, 4]|select %}{{ loop.revindex }}{% endfor %}":                 "TrueFalse21",
		"{% set r = [1, 2, 3]|map('string') %}{{ '2' in r }}{{ '1' in r }}{{ '3' in r }}":                                                     "TrueFalseFalse",
		"{% set r = [1, 2, 3]|map('string') %}{% for x in r %}{% break %}{% endfor %}{{ r|join }}":                                            "23",
		"{% for a in [1, 2] %}{{ loop.depth }}{% for b in [1] %}{{ loop.depth }}{{ loop.depth0 }}{% endfor %}{% endfor %}":                    "110110",
		"{{ 3000000 / 2 }} {{ 1 / 10000 }} {{ 1 / 100000 }} {{ 9999999999999998.0 }} {{ 10000000000000000.0 }} {{ 1.5|tojson }}":              "1500000.0 0.0001 1e-05 9999999999999998.0 1e+16 1.5",
		"{{ '\x1c\u2003\u205fa\u1680\u202f'.strip() }}{{ 'a\u2009b'.split()|length }}":                                                        "a2",
		"{{ strftime_now is defined }}{{ other is defined }}{{ range is callable }}":                                                          "TrueFalseTrue",
		"{{ 'a,b,c'.split(',', 1)|join(';') }}{{ 'a,b'.split(',', 0)|length }}":                                                               "a;b,c1",
	} {
		template, err := Parse(source)
		if err != nil {
			t.Errorf("%s: %v", source, err)
			continue
		}
		text, err := template.Render([]Message{{Role: "user", Content: "a"}, {Role: "assistant", Content: "b"}, {Role: "user", Content: "c"}}, Options{})
		if err != nil || text != want {
			t.Errorf("%s: %q, %v, want %q", source, text, err, want)
		}
	}
}

func TestDateIsTheCallers(t *testing.T) {
	t.Parallel()
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
