package yang

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// notified is a notification of coe-changes about a pod.
const notified = `{"operation":"put","target":"/pod:coe/pods=9f2a6d5e-0000-4000-8000-00000000000a",` +
	`"value":{"pod:coe":{"pods":[{"uid":"9f2a6d5e-0000-4000-8000-00000000000a","name":"a<b"}]}}}`

// A notification is written in both encodings, with the content of its anydata, and libyang
// accepts both.
func TestNotification(t *testing.T) {
	schema := load(t)
	node := schema.Notification("coe-changes:entry-changed")
	require.NotNil(t, node)
	require.False(t, node.Config)
	require.Equal(t, []string{"coe-changes:operation", "coe-changes:target", "coe-changes:value"}, childNames(node.Children))
	got, err := DecodeObject([]byte(notified), node)
	require.NoError(t, err)
	require.JSONEq(t, `{"coe-changes:entry-changed":`+notified+`}`, encoded([]*Data{got}))
	var asXML bytes.Buffer
	EncodeXML(&asXML, []*Data{got})
	require.Equal(t, `<entry-changed xmlns="urn:coe-bridge:changes"><operation>put</operation>`+
		`<target>/pod:coe/pods=9f2a6d5e-0000-4000-8000-00000000000a</target>`+
		`<value><coe xmlns="urn:opendaylight:coe:northbound:pod"><pods><uid>9f2a6d5e-0000-4000-8000-00000000000a</uid>`+
		`<name>a&lt;b</name></pods></coe></value></entry-changed>`, asXML.String())

	lint := yanglint(t)
	for _, document := range []string{encoded([]*Data{got}), asXML.String()} {
		name := filepath.Join(t.TempDir(), "notified"+map[bool]string{true: ".xml", false: ".json"}[document[0] == '<'])
		require.NoError(t, os.WriteFile(name, []byte(document), 0o600))
		runs(t, lint, "-p", ".", "-t", "notif", "coe-changes.yang", "pod.yang", name)
	}
}

func TestNoSuchNotification(t *testing.T) {
	schema := load(t)
	for _, name := range []string{"", "entry-changed", "pod:entry-changed", "coe-changes:", "nowhere:entry-changed"} {
		require.Nil(t, schema.Notification(name), name)
	}
}

// Anydata is supported in notifications only, because stored data needs a schema.
func TestAnydataElsewhereIsRefused(t *testing.T) {
	_, err := compile(map[string]string{"m.yang": `module m { namespace "urn:m"; prefix m; container c { anydata x; } }`})
	require.ErrorContains(t, err, "not supported")
}

func TestImplemented(t *testing.T) {
	for _, m := range load(t).Modules {
		require.Contains(t, m.Text, "module "+m.Name+" {")
		switch m.Name {
		case "ietf-inet-types", "ietf-yang-types", "coe-extensions":
			require.False(t, m.Implemented, m.Name)
		default:
			require.True(t, m.Implemented, m.Name)
		}
	}
}
