package fault

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strings"
)

// fieldError is an error about fields of a struct. Its text names them as Go does.
type fieldError struct {
	err  error  // of fmt.Errorf
	file string // the text with the names of files
}

// braces is a field in a format.
var braces = regexp.MustCompile(`\{([A-Za-z0-9.]+)\}`)

// Fieldf returns the error of fmt.Errorf for a struct of the type T, in whose format each {Field} names
// a field: of T, or of a struct in it. {A.B} is the field B of the field A. The error has Go's names;
// InFile replaces them by the names that files have, or by their words. Braces of args stay as they are.
func Fieldf[T any](format string, args ...any) error {
	file := make([]any, len(args))
	for i, x := range args {
		file[i] = x
		if inner, is := x.(error); is {
			file[i] = fileText(inner)
		}
	}
	tags := braces.ReplaceAllStringFunc(format, func(s string) string { return tagOf(reflect.TypeFor[T](), s[1:len(s)-1]) })
	return &fieldError{
		err:  fmt.Errorf(braces.ReplaceAllString(format, "$1"), args...),
		file: fmt.Sprintf(strings.ReplaceAll(tags, "%w", "%v"), file...),
	}
}

// Error returns the text with Go's names.
func (e *fieldError) Error() string { return e.err.Error() }

// Unwrap returns the error of fmt.Errorf.
func (e *fieldError) Unwrap() error { return e.err }

// inWords is where a word of a name begins.
var inWords = regexp.MustCompile(`([a-z])([A-Z])`)

// tagOf returns the name in files of a field of t, or of a struct in it, such as Batch or Model.Heads:
// its tag, or the words of its name.
func tagOf(t reflect.Type, path string) string {
	for {
		first, rest, more := strings.Cut(path, ".")
		if !more {
			return cmp.Or(findTag(t, path), strings.ToLower(inWords.ReplaceAllString(path, "$1 $2")))
		}
		if f, has := t.FieldByName(first); has {
			t = f.Type
		}
		path = rest
	}
}

// findTag returns the name that the tag json gives to a field of a struct, or of a struct in it; "":
// there is no such field.
func findTag(t reflect.Type, name string) string {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return ""
	}
	if f, has := t.FieldByName(name); has {
		tag, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		return tag
	}
	for f := range t.Fields() {
		if tag := findTag(f.Type, name); f.IsExported() && tag != "" {
			return tag
		}
	}
	return ""
}

// InFile returns err, in whose text fields have the names of files: the error of a value that a file
// or a command line has set, and not a Go call.
func InFile(err error) error {
	if err == nil {
		return nil
	}
	if text := fileText(err); text != err.Error() {
		return &inFile{text, err}
	}
	return err
}

// Texts returns the text of err, and the text that InFile gives it.
func Texts(err error) (inGo, inFile string) { return err.Error(), fileText(err) }

// OfTexts returns an error with the texts of another one, such as that of another process.
func OfTexts(inGo, inFile string) error { return &fieldError{errors.New(inGo), inFile} }

// inFile is an error with another text.
type inFile struct {
	text string
	err  error
}

func (e *inFile) Error() string { return e.text }

// Unwrap returns the error with Go's names.
func (e *inFile) Unwrap() error { return e.err }

// fileText returns the text of err, in which the text of the fieldError that it is or wraps has the
// names of files.
func fileText(err error) string {
	e := findField(err)
	if e == nil {
		return err.Error()
	}
	return strings.Replace(err.Error(), e.Error(), e.file, 1)
}

// findField returns the first fieldError that err is or wraps and InFile has not replaced; nil: there
// is none.
func findField(err error) *fieldError {
	for err != nil {
		switch e := err.(type) {
		case *fieldError:
			return e
		case *inFile:
			return nil
		case interface{ Unwrap() []error }:
			for _, x := range e.Unwrap() {
				if found := findField(x); found != nil {
					return found
				}
			}
			return nil
		}
		err = errors.Unwrap(err)
	}
	return nil
}
