package grammar

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/farfield-ml/farfield/internal/atomicfile"
	"github.com/farfield-ml/farfield/internal/strict"
)

// Piece is a part of an answer: a fixed text, or a value that follows a schema.
type Piece struct {
	Text   string
	Schema json.RawMessage // nil: the piece is Text
	Path   string          // path of the schema in the request, for errors
}

// New returns the grammar of answers that consist of one of several sequences of pieces. It returns
// a *SchemaError if a schema is invalid or has a construct outside the subset.
func New(choices ...[]Piece) (*Grammar, error) {
	c := &compiler{builder: newBuilder()}
	var list []part
	for _, pieces := range choices {
		p := c.empty()
		for _, x := range pieces {
			if x.Schema == nil {
				p = c.join(p, c.text(x.Text))
				continue
			}
			value, err := c.compile(x.Schema, x.Path)
			if err != nil {
				return nil, err
			}
			p = c.join(p, value)
		}
		list = append(list, p)
	}
	g, err := c.finish(c.either(list...))
	if err != nil {
		return nil, &SchemaError{choices[0][0].Path, err.Error()}
	}
	return g, nil
}

// Object returns the grammar of any JSON object.
func Object() *Grammar {
	b := newBuilder()
	g, err := b.finish(b.anyObject())
	if err != nil {
		panic(err) // a bug: the rules are constant
	}
	return g
}

// SchemaError is returned for a schema that is invalid or not supported.
type SchemaError struct {
	Path    string
	Message string
}

// Error returns the path in the schema and the message.
func (e *SchemaError) Error() string { return e.Path + ": " + e.Message }

// compiler makes parts of schemas.
type compiler struct {
	*builder
	root json.RawMessage // the schema, in which references are looked up
	path string          // of root
	in   int             // number of the schema, for the names of its rules
}

// compile makes the part of a whole schema.
func (c *compiler) compile(schema json.RawMessage, path string) (part, error) {
	c.root, c.path = schema, path
	c.in++
	p, err := c.value(schema, path, 0)
	if err == nil && c.err != nil {
		err = &SchemaError{path, c.err.Error()}
	}
	return p, err
}

// ignored are keywords that describe a value and do not change which are valid.
var ignored = []string{"$schema", "$id", "$comment", "$anchor", "$defs", "definitions", "title", "description", "default", "examples",
	"example", "deprecated", "readOnly", "writeOnly", "discriminator", "strict", "contentMediaType", "contentEncoding", "nullable"}

// keywords are the keywords of each type.
var keywords = map[string][]string{
	"object":  {"properties", "required", "additionalProperties", "minProperties", "maxProperties"},
	"array":   {"items", "prefixItems", "minItems", "maxItems"},
	"string":  {"minLength", "maxLength", "format"},
	"integer": {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"},
	"number":  {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"},
	"boolean": nil, "null": nil,
}

// schema is a JSON Schema with its keywords in order.
type schema struct {
	path   string
	fields map[string]json.RawMessage
}

// fail returns the error of a keyword of s.
func (s *schema) fail(keyword, format string, args ...any) error {
	path := s.path
	if keyword != "" {
		path += "." + keyword
	}
	return &SchemaError{path, fmt.Sprintf(format, args...)}
}

// read sets dst to the value of a keyword, if there is one. kind says in words what it needs to be.
func (s *schema) read(keyword, kind string, dst any) error {
	value, ok := s.fields[keyword]
	if !ok {
		return nil
	}
	if json.Unmarshal(value, dst) != nil {
		return s.fail(keyword, "is %s, needs %s", shorten(value), kind)
	}
	return nil
}

// shorten returns the beginning of a value for an error.
func shorten(value json.RawMessage) string {
	if len(value) > 40 {
		return string(bytes.ToValidUTF8(value[:40], nil)) + "…"
	}
	return string(value)
}

// value makes the part of values under a schema.
func (c *compiler) value(text json.RawMessage, path string, depth int) (part, error) {
	s := &schema{path: path}
	text = bytes.TrimSpace(text)
	switch {
	case depth > maxDepth:
		return part{}, s.fail("", "is nested more than %d deep", maxDepth)
	case string(text) == "true" || string(text) == "{}":
		return c.anyValue(), nil
	case len(text) == 0 || text[0] != '{' || json.Unmarshal(text, &s.fields) != nil:
		return part{}, s.fail("", "is %s, needs a schema", shorten(text))
	}
	for _, first := range []struct {
		keyword string
		make    func(*compiler, *schema, int) (part, error)
	}{{"$ref", (*compiler).reference}, {"const", (*compiler).constant}, {"enum", (*compiler).choice}, {"anyOf", (*compiler).anyOf}, {"oneOf", (*compiler).anyOf}, {"allOf", (*compiler).allOf}} {
		if _, ok := s.fields[first.keyword]; !ok {
			continue
		}
		// Beside a constant its type says nothing more.
		allowed := append([]string{first.keyword}, ignored...)
		if first.keyword == "const" || first.keyword == "enum" {
			allowed = append(allowed, "type")
		}
		if err := s.checkKeywords(allowed); err != nil {
			return part{}, err
		}
		return first.make(c, s, depth)
	}
	return c.typed(s, depth)
}

// checkKeywords returns an error for a keyword that is none of list.
func (s *schema) checkKeywords(list []string) error {
	for _, keyword := range slices.Sorted(maps.Keys(s.fields)) {
		if !slices.Contains(list, keyword) {
			return s.fail(keyword, "is not supported here")
		}
	}
	return nil
}

// typed makes the part of values of the types of s.
func (c *compiler) typed(s *schema, depth int) (part, error) {
	types, err := s.types()
	if err != nil {
		return part{}, err
	}
	allowed := append([]string{"type"}, ignored...)
	for _, t := range types {
		allowed = append(allowed, keywords[t]...)
	}
	if err := s.checkKeywords(allowed); err != nil {
		return part{}, err
	}
	if len(types) == 0 {
		return c.anyValue(), nil
	}
	var list []part
	for _, t := range types {
		p, err := c.ofType(s, t, depth)
		if err != nil {
			return part{}, err
		}
		list = append(list, p)
	}
	return c.either(list...), nil
}

// types returns the types of s; none: any. Keywords of one type imply it.
func (s *schema) types() ([]string, error) {
	var one string
	var list []string
	switch value, ok := s.fields["type"]; {
	case !ok:
		for _, t := range []string{"object", "array", "string"} {
			if slices.ContainsFunc(keywords[t], func(k string) bool { return s.fields[k] != nil }) {
				list = append(list, t)
			}
		}
		if len(list) == 0 && s.fields["minimum"] != nil {
			list = []string{"number"}
		}
		return list, nil
	case json.Unmarshal(value, &one) == nil:
		list = []string{one}
	case json.Unmarshal(value, &list) != nil || len(list) == 0:
		return nil, s.fail("type", "is %s, needs a name or names of types", shorten(value))
	}
	var nullable bool
	if s.read("nullable", "true or false", &nullable) == nil && nullable && !slices.Contains(list, "null") {
		list = append(list, "null")
	}
	for _, t := range list {
		if _, ok := keywords[t]; !ok {
			return nil, s.fail("type", "%.40q is no type", t)
		}
	}
	return list, nil
}

// ofType makes the part of values of one type.
func (c *compiler) ofType(s *schema, kind string, depth int) (part, error) {
	switch kind {
	case "boolean":
		return c.either(c.text("true"), c.text("false")), nil
	case "null":
		return c.text("null"), nil
	case "string":
		return c.stringOf(s)
	case "integer", "number":
		return c.numberOf(s, kind)
	case "array":
		return c.arrayOf(s, depth)
	}
	return c.objectOf(s, depth)
}

// bounds reads the keywords of a least and a greatest number of something; most < 0: there is none.
func (s *schema) bounds(low, high string) (least, most int, err error) {
	most = -1
	for _, x := range []struct {
		name string
		dst  *int
	}{{low, &least}, {high, &most}} {
		if err := s.read(x.name, "an integer", x.dst); err != nil {
			return 0, 0, err
		}
		if _, ok := s.fields[x.name]; ok && (*x.dst < 0 || *x.dst > maxStates) {
			return 0, 0, s.fail(x.name, "%d is not between 0 and %d", *x.dst, maxStates)
		}
	}
	if most >= 0 && least > most {
		return 0, 0, s.fail(low, "%d is above %s, which is %d", least, high, most)
	}
	return least, most, nil
}

// stringOf makes the part of strings.
func (c *compiler) stringOf(s *schema) (part, error) {
	least, most, err := s.bounds("minLength", "maxLength")
	if err != nil {
		return part{}, err
	}
	var format string
	if err := s.read("format", "a name", &format); err != nil {
		return part{}, err
	}
	two := func(low, high int64) part {
		return c.sameLength(fmt.Sprintf("%02d", low), fmt.Sprintf("%02d", high))
	}
	// Days go to 28, which each month has.
	date := func() part {
		return c.join(c.digits(4, 4), c.text("-"), two(1, 12), c.text("-"), two(1, 28))
	}
	clock := func() part {
		return c.join(two(0, 23), c.text(":"), two(0, 59), c.text(":"), two(0, 59), c.text("Z"))
	}
	var p part
	switch format {
	case "":
		if least == 0 && most < 0 {
			return c.anyString(), nil
		}
		return c.str(least, most), nil
	case "date":
		p = date()
	case "time":
		p = clock()
	case "date-time":
		p = c.join(date(), c.text("T"), clock())
	case "uuid":
		hex := func(n int) part { return c.repeat(func() part { return c.bytes("09af") }, n, n) }
		p = c.join(hex(8), c.text("-"), hex(4), c.text("-"), hex(4), c.text("-"), hex(4), c.text("-"), hex(12))
	default:
		return part{}, s.fail("format", "%.40q is not supported; date, time, date-time and uuid are", format)
	}
	if least > 0 || most >= 0 {
		return part{}, s.fail("format", "%q beside a length is not supported", format)
	}
	return c.join(c.text(`"`), p, c.text(`"`)), nil
}

// maxInteger is the largest integer that JSON's readers keep.
const maxInteger = 1<<53 - 1

// numberOf makes the part of numbers.
func (c *compiler) numberOf(s *schema, kind string) (part, error) {
	low, high := float64(-maxInteger), float64(maxInteger)
	isBounded := false
	for _, x := range []struct {
		name string
		dst  *float64
		more float64
	}{{"minimum", &low, 0}, {"maximum", &high, 0}, {"exclusiveMinimum", &low, 1}, {"exclusiveMaximum", &high, -1}} {
		if _, ok := s.fields[x.name]; !ok {
			continue
		}
		var bound float64
		if err := s.read(x.name, "a number", &bound); err != nil {
			return part{}, err
		}
		switch {
		case kind == "number" && (x.name != "minimum" || bound != 0):
			return part{}, s.fail(x.name, "%v of numbers that are no integers is not supported; minimum 0 is", bound)
		case bound != float64(int64(bound)) || bound < -maxInteger || bound > maxInteger:
			return part{}, s.fail(x.name, "%v is no integer of 53 bits", bound)
		}
		bound += x.more
		if x.dst == &low {
			low = max(low, bound)
		} else {
			high = min(high, bound)
		}
		isBounded = true
	}
	switch {
	case kind == "number":
		return c.number(!isBounded), nil
	case !isBounded:
		return c.integer(true), nil
	case low > high:
		return part{}, s.fail("minimum", "%v is above %v: no integer is possible", low, high)
	}
	return c.between(int64(low), int64(high)), nil
}

// arrayOf makes the part of arrays.
func (c *compiler) arrayOf(s *schema, depth int) (part, error) {
	least, most, err := s.bounds("minItems", "maxItems")
	if err != nil {
		return part{}, err
	}
	if _, ok := s.fields["prefixItems"]; ok {
		return c.tuple(s, least, most, depth)
	}
	items, ok := s.fields["items"]
	if !ok {
		return c.array(c.anyValue, least, most), nil
	}
	name := c.name(s.path + ".items")
	p := c.array(func() part {
		return c.rule(name, func() part {
			p, failed := c.value(items, s.path+".items", depth+1)
			if failed != nil {
				c.fail(failed)
				err = failed
				return c.empty()
			}
			return p
		})
	}, least, most)
	return p, err
}

// tuple makes the part of arrays whose elements have schemas of their own.
func (c *compiler) tuple(s *schema, least, most, depth int) (part, error) {
	var list []json.RawMessage
	if err := s.read("prefixItems", "an array of schemas", &list); err != nil {
		return part{}, err
	}
	if n := len(list); n == 0 || least > n || most >= 0 && most < n {
		return part{}, s.fail("prefixItems", "has %d schemas, minItems and maxItems allow %d to %d; other lengths are not supported", n, least, most)
	}
	p := c.join(c.text("["), c.space())
	for i, x := range list {
		value, err := c.value(x, fmt.Sprintf("%s.prefixItems[%d]", s.path, i), depth+1)
		if err != nil {
			return part{}, err
		}
		if i > 0 {
			p = c.join(p, c.text(","), c.space())
		}
		p = c.join(p, value)
	}
	return c.join(p, c.space(), c.text("]")), nil
}

// name returns the name of the rule of a path.
func (c *compiler) name(path string) string { return strconv.Itoa(c.in) + " " + path }

// property is a property of an object.
type property struct {
	name   string
	schema json.RawMessage
}

// properties returns the properties of s in their order.
func (s *schema) properties() ([]property, error) {
	text, ok := s.fields["properties"]
	if !ok {
		return nil, nil
	}
	if text[0] != '{' {
		return nil, s.fail("properties", "is %s, needs an object", shorten(text))
	}
	var list []property
	err := strict.EachMember(text, func(name string, value []byte) error {
		list = append(list, property{name, slices.Clone(value)})
		return nil
	})
	if err != nil {
		return nil, s.fail("properties", "%v", err)
	}
	return list, nil
}

// objectOf makes the part of objects. Properties come in the order of the schema; those that are not required may be
// left out.
func (c *compiler) objectOf(s *schema, depth int) (part, error) {
	list, err := s.properties()
	if err != nil {
		return part{}, err
	}
	var required []string
	if err := s.read("required", "an array of names", &required); err != nil {
		return part{}, err
	}
	for _, name := range required {
		if !slices.ContainsFunc(list, func(p property) bool { return p.name == name }) {
			return part{}, s.fail("required", "%.40q is none of properties", name)
		}
	}
	least, most, err := s.bounds("minProperties", "maxProperties")
	if err != nil {
		return part{}, err
	}
	others, hasOthers := s.fields["additionalProperties"]
	if len(list) == 0 {
		switch {
		case !hasOthers || string(others) == "true" || string(others) == "{}":
			if least == 0 && most < 0 {
				return c.anyObject(), nil
			}
			return c.dictionary(c.anyValue, least, most), nil
		case string(others) == "false":
			if least > 0 {
				return part{}, s.fail("minProperties", "%d without properties", least)
			}
			return c.join(c.text("{"), c.space(), c.text("}")), nil
		}
		name := c.name(s.path + ".additionalProperties")
		p := c.dictionary(func() part {
			return c.rule(name, func() part {
				p, failed := c.value(others, s.path+".additionalProperties", depth+1)
				if failed != nil {
					c.fail(failed)
					err = failed
					return c.empty()
				}
				return p
			})
		}, least, most)
		return p, err
	}
	if _, ok := s.fields["minProperties"]; ok && least > len(required) {
		return part{}, s.fail("minProperties", "%d beside %d required properties is not supported", least, len(required))
	}
	if most >= 0 && most < len(list) {
		return part{}, s.fail("maxProperties", "%d of %d properties is not supported", most, len(list))
	}
	// Two states before each property: no property is there yet, or one is.
	none := c.join(c.text("{"), c.space()).also(c)
	some := c.add()
	start := none.from
	last := none.to
	for i, x := range list {
		value, err := c.value(x.schema, fmt.Sprintf("%s.properties.%s", s.path, x.name), depth+1)
		if err != nil {
			return part{}, err
		}
		name, err := atomicfile.MarshalJSON(x.name)
		if err != nil {
			return part{}, s.fail("properties", "%v", err)
		}
		entry := c.join(c.text(string(name)+":"), c.space(), value)
		nextNone, nextSome := int32(-1), c.add()
		if last >= 0 {
			c.connect(last, entry.from)
		}
		comma := c.join(c.text(","), c.space())
		if i > 0 {
			c.connect(some, comma.from)
			c.connect(comma.to, entry.from)
		}
		c.connect(entry.to, nextSome)
		if !slices.Contains(required, x.name) {
			if last >= 0 {
				nextNone = c.add()
				c.connect(last, nextNone)
			}
			if i > 0 {
				c.connect(some, nextSome)
			}
		}
		last, some = nextNone, nextSome
	}
	end := c.join(c.space(), c.text("}"))
	c.connect(some, end.from)
	if last >= 0 {
		closed := c.text("}") // the blanks are there
		c.connect(last, closed.from)
		c.connect(closed.to, end.to)
	}
	return part{start, end.to}, nil
}

// also returns p after a state of its own, so that more can follow its end.
func (p part) also(c *compiler) part { return c.join(p, c.empty()) }

// reference makes the part of a definition of the schema.
func (c *compiler) reference(s *schema, depth int) (part, error) {
	var ref string
	if err := s.read("$ref", "a string", &ref); err != nil {
		return part{}, err
	}
	if ref != "#" && !strings.HasPrefix(ref, "#/") {
		return part{}, s.fail("$ref", "%.80q is not within the schema", ref)
	}
	at, path := c.root, c.path
	for _, name := range strings.Split(strings.TrimPrefix(strings.TrimPrefix(ref, "#"), "/"), "/") {
		if name == "" {
			continue
		}
		name = strings.NewReplacer("~1", "/", "~0", "~").Replace(name)
		var fields map[string]json.RawMessage
		if json.Unmarshal(at, &fields) != nil || fields[name] == nil {
			return part{}, s.fail("$ref", "there is no %.80q", ref)
		}
		at, path = fields[name], path+"."+name
	}
	var err error
	p := c.rule(c.name(path), func() part {
		p, failed := c.value(at, path, depth+1)
		if failed != nil {
			err = failed
			return c.empty()
		}
		return p
	})
	return p, err
}

// constant and choice make the parts of given values.
func (c *compiler) constant(s *schema, _ int) (part, error) {
	return c.given(s, "const", s.fields["const"])
}

func (c *compiler) choice(s *schema, _ int) (part, error) {
	var values []json.RawMessage
	if err := s.read("enum", "an array of values", &values); err != nil {
		return part{}, err
	}
	if len(values) == 0 {
		return part{}, s.fail("enum", "has no values")
	}
	var list []part
	for _, x := range values {
		p, err := c.given(s, "enum", x)
		if err != nil {
			return part{}, err
		}
		list = append(list, p)
	}
	return c.either(list...), nil
}

// given makes the part of one value.
func (c *compiler) given(s *schema, keyword string, value json.RawMessage) (part, error) {
	var b bytes.Buffer
	if err := json.Compact(&b, value); err != nil {
		return part{}, s.fail(keyword, "%v", err)
	}
	return c.text(b.String()), nil
}

// anyOf makes the part of values under one of several schemas. oneOf is read as anyOf.
func (c *compiler) anyOf(s *schema, depth int) (part, error) {
	keyword := "anyOf"
	if _, ok := s.fields[keyword]; !ok {
		keyword = "oneOf"
	}
	var list []json.RawMessage
	if err := s.read(keyword, "an array of schemas", &list); err != nil {
		return part{}, err
	}
	if len(list) == 0 {
		return part{}, s.fail(keyword, "has no schemas")
	}
	var parts []part
	for i, x := range list {
		p, err := c.value(x, fmt.Sprintf("%s.%s[%d]", s.path, keyword, i), depth+1)
		if err != nil {
			return part{}, err
		}
		parts = append(parts, p)
	}
	return c.either(parts...), nil
}

// allOf makes the part of values under one schema in an array.
func (c *compiler) allOf(s *schema, depth int) (part, error) {
	var list []json.RawMessage
	if err := s.read("allOf", "an array of schemas", &list); err != nil {
		return part{}, err
	}
	if len(list) != 1 {
		return part{}, s.fail("allOf", "of %d schemas is not supported, of one it is", len(list))
	}
	return c.value(list[0], s.path+".allOf[0]", depth+1)
}
