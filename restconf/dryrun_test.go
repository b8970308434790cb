package restconf

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/yang"
)

// TestYANGPatchDryRun: a dry run has the same response as the patch itself, and writes
// nothing.
func TestYANGPatchDryRun(t *testing.T) {
	checked := func(c *Config) {
		c.EntryChecks = map[string]func(*yang.Data) error{"pod:coe/pods": func(pod *yang.Data) error {
			if pod.Leaf("name") == "bad" {
				return errors.New("the name is bad")
			}
			return nil
		}}
	}
	const target = "/pods=" + uid1
	unknown := value(`{"pod:pods":[{"uid":"`+uid1+`","x":1}]}`, `<pods`+podSpace+`><uid>`+uid1+`</uid><x/></pods>`)
	bad := value(`{"pod:pods":[{"uid":"`+uid1+`","name":"bad"}]}`, `<pods`+podSpace+`><uid>`+uid1+`</uid><name>bad</name></pods>`)
	for _, c := range []struct {
		name, query string
		edit        testEdit
		status      int
		tag         string
	}{
		{"good", "true", testEdit{operation: "create", target: target, value: podValue(uid1)}, 200, ""},
		{"made after all", "false", testEdit{operation: "create", target: target, value: podValue(uid1)}, 200, ""},
		{"an edit that can't be made", "true", testEdit{operation: "delete", target: target}, 409, "data-missing"},
		{"bad by the schema", "true", testEdit{operation: "create", target: target, value: unknown}, 400, "unknown-element"},
		{"bad by a check", "true", testEdit{operation: "create", target: target, value: bad}, 400, "invalid-value"},
	} {
		for _, inXML := range []bool{false, true} {
			t.Run(c.name, func(t *testing.T) {
				b := newBed(t, checked)
				c.edit.id = "1"
				got := b.patch(coeRFC+"?dry-run="+c.query, inXML, patchBody(inXML, c.edit))
				require.Equal(t, c.status, got.status)
				require.Equal(t, c.tag == "", got.ok)
				if c.tag != "" {
					require.Equal(t, []string{c.tag}, append(got.edits["1"], got.global...))
				}
				written := b.do("GET", coeRFC, "").status == 200
				require.Equal(t, c.query == "false", written)
			})
		}
	}
}

// TestDryRunElsewhere: a request that does not support dry-run is refused, because the server
// would otherwise make the write.
func TestDryRunElsewhere(t *testing.T) {
	b := newBed(t)
	for _, c := range []struct{ method, path, kind, body string }{
		{"PUT", podsRFC + uid1 + "?dry-run=true", "application/yang-data+json", podRFC(uid1)},
		{"PATCH", coeRFC + "?dry-run=true", "application/yang-data+json", "{}"},
		{"GET", coeRFC + "?dry-run=true", "application/yang-data+json", ""},
		{"PATCH", coeRFC + "?dry-run=maybe", "application/yang-patch+json", patchBody(false)},
	} {
		got := b.do(c.method, c.path, c.body, header("Content-Type", c.kind))
		require.Equal(t, 400, got.status, got.body)
		require.Contains(t, got.body, "dry-run")
	}
}

// TestDraftRefusesWhatChangesAWrite: draft-02 ignores unknown parameters, but refuses those
// that change a write. A client that asks for a dry run must not get a write.
func TestDraftRefusesWhatChangesAWrite(t *testing.T) {
	b := newBed(t)
	require.Equal(t, 201, b.do("PUT", pods+uid1, pod(uid1)).status)
	before := b.everything()
	for _, query := range []string{"dry-run=true", "insert=first", "point=%2Fpod:coe"} {
		name, _, _ := strings.Cut(query, "=")
		for method, body := range map[string]string{"PUT": pod(uid2), "POST": pod(uid2), "DELETE": ""} {
			path := pods + uid2
			switch method {
			case "POST":
				path = coe
			case "DELETE":
				path = pods + uid1
			}
			got := b.do(method, path+"?"+query, body)
			require.Equal(t, 400, got.status, "%s %s: %s", method, query, got.body)
			require.Contains(t, got.body, name)
		}
		require.Equal(t, 200, b.do("GET", pods+uid1+"?"+query, "").status)
	}
	require.Equal(t, before, b.everything())
	require.Equal(t, 201, b.do("PUT", pods+uid2+"?other=x&depth=1", pod(uid2)).status)
}
