package follow

import (
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/servers"
)

// A row that replaces another one of its name in one transaction is a new port, in whichever order the
// server shows both.
func TestPortIsReplaced(t *testing.T) {
	row := func(up string) []jsontext.Value {
		return []jsontext.Value{[]byte(`"a:pod"`), []byte(`""`), []byte(up), []byte(`["set",[]]`)}
	}
	for name, replace := range map[string]func(*portTable){
		"deleted first": func(p *portTable) {
			p.show("old", row("true"), false, true)
			p.show("new", row("false"), false, false)
		},
		"inserted first": func(p *portTable) {
			p.show("new", row("false"), false, false)
			p.show("old", row("true"), false, true)
		},
	} {
		t.Run(name, func(t *testing.T) {
			reported := 0
			p := newPortTable(&servers.List{}, "Port_Binding")
			p.installed = func(string) { reported++ }
			p.show("old", row("true"), true, false)
			p.begin()
			replace(p)
			now, known, err := p.get("a:pod")
			require.NoError(t, err)
			require.True(t, known)
			require.Positive(t, now.row)
			require.Zero(t, now.up)
			p.show("new", row("true"), false, false)
			require.Equal(t, 1, reported)
			p.show("new", row("false"), false, false)
			p.show("new", row("true"), false, false)
			require.Equal(t, 1, reported, "it was up before")
		})
	}
}
