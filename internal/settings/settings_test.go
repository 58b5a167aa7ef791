package settings

import (
	"slices"
	"testing"
)

type setting struct{ Name, Default, Doc string }

func newReader(values map[string]string) *Reader {
	return NewReader("owner", []setting{{"width", "4", ""}, {"scale", "none", ""}, {"kind", "a", ""}, {"all", "true", ""}, {"list", "1, 2", ""}}, values)
}

func TestValuesThatAreNotSetHaveTheirDefaults(t *testing.T) {
	r := newReader(nil)
	width, err1 := r.Integer("width", 1, 8)
	scale, err2 := r.Positive("scale", "none")
	kind, err3 := r.Choice("kind", "a", "b")
	all, err4 := r.Bool("all")
	list, err5 := r.Integers("list", 1, 2)
	if width != 4 || scale != 0 || kind != "a" || !all || !slices.Equal(list, []int{1, 2}) {
		t.Errorf("%d %g %q %t %v", width, scale, kind, all, list)
	}
	for _, err := range []error{err1, err2, err3, err4, err5} {
		if err != nil {
			t.Error(err)
		}
	}
}

func TestValuesOutOfRangeAreRefusedWithBothValues(t *testing.T) {
	r := newReader(map[string]string{"width": "9", "scale": "-1", "kind": "c", "all": "yes", "list": "1,3"})
	_, err1 := r.Integer("width", 1, 8)
	_, err2 := r.Positive("scale", "none")
	_, err3 := r.Choice("kind", "a", "b")
	_, err4 := r.Bool("all")
	_, err5 := r.Integers("list", 1, 2)
	for want, err := range map[string]error{
		"owner: setting width=9: needs a whole number from 1 to 8":                          err1,
		"owner: setting scale=-1: needs a number from 1e-30 to 1e30, or none":               err2,
		"owner: setting kind=c: needs one of a, b":                                          err3,
		"owner: setting all=yes: needs true or false":                                       err4,
		"owner: setting list=1,3: needs whole numbers from 1 to 2 with commas between them": err5,
	} {
		if err == nil || err.Error() != want {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	if _, err := newReader(map[string]string{"scale": "1e-40"}).Positive("scale", "none"); err == nil { // 1/1e-40 is infinite in float32
		t.Error("scale=1e-40 was taken")
	}
}

func TestUnknownNamesAreFoundInOrder(t *testing.T) {
	if name, found := newReader(map[string]string{"width": "1"}).FindUnknown(); found {
		t.Errorf("%q is a setting", name)
	}
	if name, found := newReader(map[string]string{"z": "", "width": "1", "b": ""}).FindUnknown(); !found || name != "b" {
		t.Errorf("%q, %t", name, found)
	}
}
