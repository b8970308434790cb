package salremote

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/restconf/wire"
	"github.com/coe-bridge/coe-bridge/yang"
)

const (
	uid1    = "9f2a6d5e-0000-4000-8000-00000000000a"
	uid2    = "9f2a6d5e-0000-4000-8000-00000000000b"
	podPath = "/pod:coe/pod:pods[pod:uid='" + uid1 + "']"
)

// The operation refuses any input, or returns a name from which the input can be read again.
func FuzzSubscribe(f *testing.F) {
	schema, err := yang.Load()
	require.NoError(f, err)
	for _, path := range []string{
		"/pod:coe", podPath, podPath + "/pod:name", "/pod:coe/pods[uid=\"" + uid2 + "\"]/interface[uid = 'x']",
		"/dhcp_allocation_pool:dhcp_allocation_pool/network[network-id='a/b=c+d %2F/datastore=X']",
	} {
		quoted, err := json.Marshal(path)
		require.NoError(f, err)
		f.Add([]byte(`{"input":{"path":` + string(quoted) + `,"sal-remote-augment:scope":"ONE","notification-output-type":"JSON"}}`))
		f.Add([]byte(`<input xmlns:p="urn:opendaylight:coe:northbound:pod"><path>` + path + `</path><scope>SUBTREE</scope></input>`))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, read := range []func([]byte) (input, error){readJSONInput, readXMLInput} {
			in, err := read(body)
			if err != nil {
				continue
			}
			asked, err := in.subscription(schema)
			if err != nil {
				continue
			}
			again, err := parseSubscription(schema, asked.name())
			require.NoError(t, err, asked.name())
			require.Equal(t, asked, again)
			same, err := wire.ParseIdentifier(schema, eventPath(asked.at), nil)
			require.NoError(t, err)
			require.Equal(t, asked.at, same, "the name in events can be parsed")
		}
	})
}
