package yang

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
)

// decoded decodes a valid body, below the container at a path or at the top level.
func decoded(t testing.TB, s *Schema, in, body string) []*Data {
	t.Helper()
	got, err := decodeIn(t, s, in, body, Strict)
	require.NoError(t, err)
	return got
}

const vpnInterface = `{"l3vpn:vpn-interfaces":{"vpn-interface":[{"name":"default:busybox1",` +
	`"vpn-instance-names":[{"vpn-name":"default","associated-subnet-type":"V4Subnet"}],"dpn-id":"5","router-interface":false,` +
	`"odl-l3vpn:adjacency":[{"next-hop-ip-list":["a\"b"],"ip_address":"10.11.2.28/32","adjacency_type":"primary-adjacency"}]}]}}`

func TestEncodeStyles(t *testing.T) {
	schema := load(t)
	top := decoded(t, schema, "", vpnInterface)
	entry := top[0].Child("vpn-interface")
	for _, test := range []struct {
		name     string
		siblings []*Data
		style    Style
		want     string
	}{
		{"top, RFC 7951", top, RFC7951, vpnInterface},
		{"top, draft-02", top, Draft02, `{"` + vpnInterface[len(`{"l3vpn:`):]},
		{"augment at the top, RFC 7951", entry.All("adjacency"), RFC7951,
			`{"odl-l3vpn:adjacency":[{"next-hop-ip-list":["a\"b"],"ip_address":"10.11.2.28/32","adjacency_type":"primary-adjacency"}]}`},
		{"augment at the top, draft-02", entry.All("adjacency"), Draft02,
			`{"adjacency":[{"next-hop-ip-list":["a\"b"],"ip_address":"10.11.2.28/32","adjacency_type":"primary-adjacency"}]}`},
		{"nothing", nil, RFC7951, `{}`},
	} {
		t.Run(test.name, func(t *testing.T) {
			var out bytes.Buffer
			EncodeJSON(&out, test.siblings, test.style)
			require.Equal(t, test.want, out.String())
		})
	}
}

func TestEncodeObjectAndBack(t *testing.T) {
	schema := load(t)
	entry := decoded(t, schema, "", vpnInterface)[0].Child("vpn-interface")
	var out bytes.Buffer
	EncodeObject(&out, entry)
	require.Equal(t, vpnInterface[len(`{"l3vpn:vpn-interfaces":{"vpn-interface":[`):len(vpnInterface)-len(`]}}`)], out.String())
	back, err := DecodeObject(out.Bytes(), entry.Node)
	require.NoError(t, err)
	require.Equal(t, entry, back)

	for _, body := range []string{``, `{`, `[]`, `{"other":1}`, `{"adjacency":[]}`, `{"name":{}}`, `{} {}`} {
		_, err := DecodeObject([]byte(body), entry.Node)
		require.ErrorContains(t, err, "decode stored vpn-interface: ", body)
	}
}

func TestDataLookups(t *testing.T) {
	schema := load(t)
	entry := decoded(t, schema, "", vpnInterface)[0].Child("vpn-interface")
	require.Equal(t, "default:busybox1", entry.Leaf("name"))
	require.Empty(t, entry.Leaf("none"))
	require.Nil(t, entry.Child("none"))
	require.Equal(t, []string{"default:busybox1"}, entry.Key())
	require.Nil(t, entry.Child("name").Key())
	adjacency := entry.All("adjacency")
	require.Len(t, adjacency, 1)
	require.Empty(t, entry.All("none"))
	path := entry.Path("/l3vpn:vpn-interfaces")
	require.Equal(t, "/l3vpn:vpn-interfaces/vpn-interface[name='default:busybox1']", path)
	path = adjacency[0].Path(path)
	require.Equal(t, "/l3vpn:vpn-interfaces/vpn-interface[name='default:busybox1']/odl-l3vpn:adjacency[ip_address='10.11.2.28/32']", path)
	require.Equal(t, path+`/next-hop-ip-list[.='a"b']`, adjacency[0].Child("next-hop-ip-list").Path(path))
	require.Equal(t, path+"/adjacency_type", adjacency[0].Child("adjacency_type").Path(path))
	require.Equal(t, "/l3vpn:vpn-interfaces/vpn-interface", entry.Node.Path("/l3vpn:vpn-interfaces"), "all entries")
}

func TestMerge(t *testing.T) {
	schema := sample(t)
	for _, test := range []struct{ name, base, patch, want string }{
		{"leaf", `{"name":"a","airport":"x"}`, `{"name":"b"}`, `{"name":"b","airport":"x"}`},
		{"new leaf in its place", `{"airport":"x"}`, `{"name":"b"}`, `{"name":"b","airport":"x"}`},
		{"container", `{"optional":{}}`, `{"optional":{"must-be":"x"}}`, `{"optional":{"must-be":"x"}}`},
		{"entries by key", `{"pair":[{"b":1,"a":"x","values":["v"]},{"b":2,"a":"x"}]}`, `{"pair":[{"b":2,"a":"x","values":["w"]},{"b":3,"a":"x"}]}`,
			`{"pair":[{"b":1,"a":"x","values":["v"]},{"b":2,"a":"x","values":["w"]},{"b":3,"a":"x"}]}`},
		{"values", `{"pair":[{"b":1,"a":"x","values":["v","w"]}]}`, `{"pair":[{"b":1,"a":"x","values":["w","z"]}]}`,
			`{"pair":[{"b":1,"a":"x","values":["v","w","z"]}]}`},
		{"another case", `{"name":"n","road":"r","toll":1}`, `{"rail":"x"}`, `{"name":"n","rail":"x"}`},
		{"same case", `{"road":"r"}`, `{"toll":1}`, `{"road":"r","toll":1}`},
		{"another case within", `{"plane":"p","airport":"a"}`, `{"balloon":"b"}`, `{"balloon":"b","airport":"a"}`},
		{"nothing", `{"name":"a"}`, `{}`, `{"name":"a"}`},
	} {
		t.Run(test.name, func(t *testing.T) {
			base := decoded(t, schema, "", `{"sample:wants":`+test.base+`}`)[0]
			patch := decoded(t, schema, "", `{"sample:wants":`+test.patch+`}`)[0]
			merged := Merge(base, patch)
			require.Equal(t, `{"sample:wants":`+test.want+`}`, encoded([]*Data{merged}))
			require.Equal(t, merged, Merge(merged, patch), "a patch can be repeated")
			require.Equal(t, `{"sample:wants":`+test.base+`}`, encoded([]*Data{base}))
			require.Equal(t, `{"sample:wants":`+test.patch+`}`, encoded([]*Data{patch}))
		})
	}
}

func TestMergeWithoutKeys(t *testing.T) {
	schema := load(t)
	service := func(ports string) *Data {
		return decoded(t, schema, "/service:service-information", `{"services":[{"uid":"`+uidA+`"`+ports+`}]}`)[0]
	}
	merged := Merge(service(`,"service-ports":[{"port":1},{"port":2}]`), service(`,"service-ports":[{"port":3},{"port":3}]`))
	require.Equal(t, service(`,"service-ports":[{"port":3},{"port":3}]`), merged, "replaced as a whole")
	require.Equal(t, merged, Merge(merged, service("")))
	require.Equal(t, merged, Merge(nil, merged))
	require.NotSame(t, merged.Children[0], Merge(nil, merged).Children[0])
}
