// Package strict reads JSON and refuses what package encoding/json lets pass: names that a value does not have,
// names in another case, names that appear twice, bytes that are not UTF-8, halves of surrogate pairs and
// anything after the value. It stands on the second version of that package.
package strict

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	jsonv1 "github.com/go-json-experiment/json/v1"

	"github.com/farfield-ml/farfield/internal/fault"
	"github.com/farfield-ml/farfield/internal/infile"
)

// Error is the error of a JSON text.
type Error struct {
	Path    string // names the value, such as messages[0].role; "": the whole text
	Message string // such as "is number, needs a string"
	err     error
}

// Error returns the path and the message.
func (e *Error) Error() string {
	switch {
	case e.IsUnknownField():
		return fmt.Sprintf("%s %q", e.Message, e.Path)
	case e.Path == "":
		return e.Message
	}
	return e.Path + ": " + e.Message
}

// Unwrap returns the error below, which is fault.ErrUnknownField for a name that the value does not have.
func (e *Error) Unwrap() error { return e.err }

// IsUnknownField reports whether the text has a name that the value does not have.
func (e *Error) IsUnknownField() bool { return e.err == fault.ErrUnknownField }

// known are the options of all values: null leaves a number, a text or a struct as it is, as in encoding/json.
var known = jsonv1.MergeWithLegacySemantics(true)

// Unmarshal reads the JSON value of data into v. It returns an *Error for everything that the package refuses and
// for values of other types. null leaves a number, a text and a struct as they are.
func Unmarshal(data []byte, v any) error {
	return explain(data, json.Unmarshal(data, v, known, json.RejectUnknownMembers(true)))
}

// UnmarshalKnown is Unmarshal without its error for names that v does not have, whose values it skips.
func UnmarshalKnown(data []byte, v any) error {
	return explain(data, json.Unmarshal(data, v, known))
}

// Check returns an *Error if data is not one JSON value without repeated names and broken text, or one
// that nests deeper than depth.
func Check(data []byte, depth int) error {
	d := jsontext.NewDecoder(bytes.NewBuffer(data))
	for {
		_, err := d.ReadToken()
		switch {
		case err != nil:
			return explain(data, err)
		case d.StackDepth() > depth:
			return &Error{pathOf(data, d.StackPointer()), fmt.Sprintf("nests deeper than %d", depth), nil}
		case d.StackDepth() == 0:
			return checkEnd(data, d.InputOffset())
		}
	}
}

// EachMember calls f with the name and the value of each member of a JSON object, in their order. f must not keep
// value. EachMember returns the first error of f, and an *Error for everything that the package refuses.
func EachMember(data []byte, f func(name string, value []byte) error) error {
	d := jsontext.NewDecoder(bytes.NewBuffer(data))
	begin, err := d.ReadToken()
	if err == nil && begin.Kind() != '{' {
		return &Error{"", "is " + kindNames[begin.Kind()] + ", needs an object", nil}
	}
	for err == nil && d.PeekKind() != '}' {
		var token jsontext.Token
		if token, err = d.ReadToken(); err != nil {
			break
		}
		name := token.String()
		var value jsontext.Value
		if value, err = d.ReadValue(); err != nil {
			break
		}
		if err := f(name, value); err != nil {
			return err
		}
	}
	if err == nil {
		_, err = d.ReadToken()
	}
	if err != nil {
		return explain(data, err)
	}
	return checkEnd(data, d.InputOffset())
}

// HasHalfPair reports whether a JSON value, which is UTF-8, has an escape of one half of a surrogate pair without the
// other half. Package encoding/json would replace it by U+FFFD.
func HasHalfPair(value []byte) bool {
	v, twice := jsontext.Value(value), jsontext.AllowDuplicateNames(true)
	return !v.IsValid(twice) && v.IsValid(twice, jsontext.AllowInvalidUTF8(true))
}

// checkEnd returns an error if more than white space follows the value that ends at byte end.
func checkEnd(data []byte, end int64) error {
	if len(bytes.TrimLeft(data[end:], " \t\r\n")) > 0 {
		return &Error{"", fmt.Sprintf("more follows the JSON value, which ends at byte %d of %d", end, len(data)), nil}
	}
	return nil
}

// explain returns err, which reading data gave, as an *Error.
func explain(data []byte, err error) error {
	var meaning *json.SemanticError
	var syntax *jsontext.SyntacticError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &meaning):
		return explainValue(data, meaning)
	case errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF):
		return &Error{"", "the JSON value ends early", io.ErrUnexpectedEOF}
	case !utf8.Valid(data):
		return &Error{"", "is not UTF-8", err}
	case !errors.As(err, &syntax):
		return &Error{"", err.Error(), err}
	case errors.Is(err, jsontext.ErrDuplicateName):
		return &Error{pathOf(data, syntax.JSONPointer), "the key appears twice", err}
	}
	d := jsontext.NewDecoder(bytes.NewBuffer(data), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	if value, err2 := d.ReadValue(); err2 == nil {
		if HasHalfPair(value) {
			return &Error{pathOf(data, syntax.JSONPointer), "has half of a surrogate pair", err}
		}
		return checkEnd(data, d.InputOffset())
	}
	return &Error{pathOf(data, syntax.JSONPointer), fmt.Sprintf("%v at byte %d", syntax.Err, syntax.ByteOffset), err}
}

// explainValue returns the error of a value of data that is well-formed.
func explainValue(data []byte, e *json.SemanticError) error {
	path := pathOf(data, e.JSONPointer)
	if inner := (*Error)(nil); errors.As(e.Err, &inner) { // of a method of the value
		if inner.Path != "" && inner.Path[0] != '[' && path != "" {
			path += "."
		}
		return &Error{path + inner.Path, inner.Message, inner.err}
	}
	number := errors.Is(e.Err, strconv.ErrRange) || errors.Is(e.Err, strconv.ErrSyntax)
	switch {
	case e.Err == json.ErrUnknownName:
		return &Error{path, "unknown field", fault.ErrUnknownField}
	case e.Err != nil && !number:
		return &Error{path, e.Err.Error(), e.Err}
	case e.GoType == nil:
		return &Error{path, e.Error(), e}
	}
	found := kindNames[e.JSONKind]
	if e.JSONKind == '0' && number {
		found += " " + infile.Shorten(string(e.JSONValue))
	}
	return &Error{path, fmt.Sprintf("is %s, needs %s", found, describeType(e.GoType)), e}
}

// kindNames are the words for the kinds of JSON.
var kindNames = map[jsontext.Kind]string{'n': "null", 'f': "bool", 't': "bool", '"': "string", '0': "number", '{': "object", '[': "array"}

// describeType returns JSON's word for a type of Go.
func describeType(t reflect.Type) string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t.Kind() {
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return "an integer in its range"
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return "an integer of 0 or more in its range"
	case reflect.Float32, reflect.Float64:
		return "a number"
	case reflect.Slice, reflect.Array:
		return "an array"
	case reflect.Bool:
		return "true or false"
	case reflect.Struct, reflect.Map:
		return "an object"
	}
	return "a " + t.Kind().String()
}

// maxPath bounds the bytes of a path.
const maxPath = 500

// pathOf returns a pointer into data, such as /messages/0/role, as messages[0].role. A long one ends with an ellipsis.
func pathOf(data []byte, p jsontext.Pointer) string {
	d := jsontext.NewDecoder(bytes.NewBuffer(data), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	var b strings.Builder
	for name := range p.Tokens() {
		if b.Len() > maxPath {
			b.WriteString("…")
			break
		}
		switch {
		case enter(d, name):
			fmt.Fprintf(&b, "[%s]", name)
		case b.Len() > 0:
			b.WriteString("." + infile.Shorten(name))
		default:
			b.WriteString(infile.Shorten(name))
		}
	}
	return b.String()
}

// enter reads up to the value of a name or index in the object or array that follows in d. It reports whether that is
// an array.
func enter(d *jsontext.Decoder, name string) (isArray bool) {
	begin, err := d.ReadToken()
	isArray = begin.Kind() == '['
	for i := 0; err == nil; i++ {
		own := strconv.Itoa(i)
		if !isArray {
			var key jsontext.Token
			if key, err = d.ReadToken(); err != nil {
				break
			}
			own = key.String()
		}
		if own == name {
			break
		}
		err = d.SkipValue()
	}
	return isArray
}
