package flags

import (
	"reflect"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/model"
)

func TestExchangeOfFlags(t *testing.T) {
	two, none := 2, 0
	for _, x := range []struct {
		flags Exchange
		want  *model.Exchange
		err   string
	}{
		{Exchange{}, nil, ""},
		{Exchange{Mechanism: "fastmax"}, &model.Exchange{Mechanism: "fastmax"}, ""},
		{Exchange{Mechanism: "local", Layers: "all"}, &model.Exchange{Mechanism: "local", AllLayers: true}, ""},
		{Exchange{Mechanism: "local", Layers: "0,2-4,7"}, &model.Exchange{Mechanism: "local", Layers: []int{0, 2, 3, 4, 7}}, ""},
		{Exchange{Mechanism: "fastmax", Settings: Settings{Order: &two}}, &model.Exchange{Mechanism: "fastmax", Order: 2}, ""},
		{Exchange{Mechanism: "fastmax", Settings: Settings{Order: &none}}, nil, "--order: 0"},
		{Exchange{Mechanism: "multipole", Settings: Settings{Order: &none}}, &model.Exchange{Mechanism: "multipole"}, ""},
		{Exchange{Mechanism: "multipole", Settings: Settings{Order: &two}}, &model.Exchange{Mechanism: "multipole", Order: 2}, ""},
		{Exchange{Mechanism: "crate"}, nil, "--mechanism: "},
		{Exchange{Mechanism: "nothing"}, nil, "--mechanism: "},
		{Exchange{Layers: "1"}, nil, "--layers: needs --mechanism"},
		{Exchange{Settings: Settings{Set: map[string]string{"span": "2"}}}, nil, "--set: needs --mechanism"},
		{Exchange{Mechanism: "local", Layers: "1,"}, nil, `--layers: ""`},
		{Exchange{Mechanism: "local", Layers: "-1"}, nil, `--layers: "-1"`},
		{Exchange{Mechanism: "local", Layers: "5-2"}, nil, `--layers: "5-2"`},
		{Exchange{Mechanism: "local", Layers: "0-18446744073709551615"}, nil, "not possible"},
	} {
		got, err := x.flags.Request()
		if !reflect.DeepEqual(got, x.want) || (err == nil) != (x.err == "") || err != nil && !strings.Contains(err.Error(), x.err) {
			t.Errorf("%+v: %+v and error %v, want %+v and %q", x.flags, got, err, x.want, x.err)
		}
	}
}
