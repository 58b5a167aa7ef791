package serve

import (
	"encoding/json"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"

	"github.com/farfield-ml/farfield/internal/strict"
)

// checkFields returns an error for the first field of data, a JSON value, that a value of type t does not have. A
// field that asks for nothing is left out, unless all is set. path is the name of the value; "": the body. checkFields
// does not look into values of other kinds than t has: their decoder refuses them.
func checkFields(data json.RawMessage, t reflect.Type, path string, all bool) error {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case isObjects(t) && t.Kind() == reflect.Slice:
		var list []json.RawMessage
		if json.Unmarshal(data, &list) != nil {
			return nil
		}
		for i, x := range list {
			if err := checkFields(x, t.Elem(), fieldName(path, i), all); err != nil {
				return err
			}
		}
	case isObjects(t):
		var fields map[string]json.RawMessage
		if json.Unmarshal(data, &fields) != nil {
			return nil
		}
		known := map[string]reflect.Type{}
		addFields(known, t)
		for _, name := range slices.Sorted(maps.Keys(fields)) {
			of, ok := known[name]
			whole := joinPath(path, name)
			if !ok && !all && asksForNothing(fields[name]) {
				continue
			}
			if !ok {
				return unknownField(whole)
			}
			if err := checkFields(fields[name], of, whole, all); err != nil {
				return err
			}
		}
	}
	return nil
}

// unknownField returns the error of a field that a request does not have.
func unknownField(path string) error {
	e := badFieldf(path, "is no field of this request")
	e.Code = "unknown_field"
	return e
}

// isObjects reports whether JSON's objects, or arrays of them, have type t.
func isObjects(t reflect.Type) bool {
	if t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	return t.Kind() == reflect.Struct && !reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]())
}

// addFields adds the fields of a struct, and those of the structs in it that have no name, by their names in JSON.
func addFields(known map[string]reflect.Type, t reflect.Type) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name != "":
			known[name] = f.Type
		case f.Anonymous && f.Type.Kind() == reflect.Struct:
			addFields(known, f.Type)
		}
	}
}

// joinPath returns the path of a field.
func joinPath(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// asksForNothing reports whether the value of an unknown field is null or has no content. false and 0 may ask for
// another answer.
func asksForNothing(value json.RawMessage) bool {
	switch compact(value) {
	case "null", "[]", "{}":
		return true
	}
	return false
}

// badBody returns the error of a body.
func badBody(message string) error {
	return &apiError{Status: http.StatusBadRequest, Type: typeRequest, Message: "body: " + message}
}

// whole is an integer, however it is written: some clients send 1.0.
type whole int

// UnmarshalJSON reads an integer. It returns an error for other values.
func (w *whole) UnmarshalJSON(data []byte) error {
	var x float64
	if err := json.Unmarshal(data, &x); err != nil || x != float64(int(x)) || x > 1<<53 || x < -1<<53 {
		kind := "number " + string(data)
		if err != nil {
			kind = "of another type"
		}
		return &strict.Error{Message: "is " + kind + ", needs an integer in its range"}
	}
	*w = whole(x)
	return nil
}
