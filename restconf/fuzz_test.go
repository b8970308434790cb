package restconf

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/restconf/tree"
	"github.com/coe-bridge/coe-bridge/restconf/wire"
	"github.com/coe-bridge/coe-bridge/yang"
)

// A path and its own URL name the same resource, in both dialects.
func FuzzPath(f *testing.F) {
	schema, err := yang.Load()
	require.NoError(f, err)
	for _, path := range []string{
		"", "/", "/pod:coe", "/pod:coe/pods/" + uid1 + "/interface/" + uid2, "/pod:coe/pods=" + uid1, "/pod:coe//pods=" + uid1 + "/name/",
		"/elan:elan-interfaces/elan-interface/a%2Fb", "/elan:elan-interfaces/elan-interface=a%2Cb%3D", "/coe-status:leases/lease=a,b",
		"/dhcp_allocation_pool:dhcp_allocation_pool/network/10.0.0.1:a+b/allocation-pool/10.0.0.0%2F24", "/%zz", "/pod:coe/pods=",
	} {
		f.Add(path)
	}
	f.Fuzz(func(t *testing.T, path string) {
		for _, d := range []*wire.Dialect{wire.Draft02, wire.RFC8040} {
			first, err := d.Parse(schema, path)
			if err != nil {
				_, ok := tree.AsErrors(err)
				require.True(t, ok, "%v", err)
				continue
			}
			again, err := d.Parse(schema, d.URL(first))
			require.NoError(t, err, d.URL(first))
			require.Equal(t, first, again)
		}
	})
}

// No body makes the server fail, and what it takes it can show.
func FuzzBody(f *testing.F) {
	b := newBed(f)
	for _, s := range samples {
		f.Add(uint8(2), s.path, s.body)
		f.Add(uint8(1), s.path, s.body)
	}
	f.Add(uint8(1), pods+uid1, pod(uid1))
	f.Add(uint8(1), podsRFC+uid1, podRFC(uid1))
	f.Add(uint8(3), coeRFC, `{"pod:coe":`+podRFC(uid1)+`}`)
	f.Add(uint8(2), "/rests/data", `{"pod:coe":{},"k8s:k8s":{"network-policies":{"network-policy":[]}}}`)
	f.Add(uint8(1), "/rests/data/k8s:k8s", `{"k8s:k8s":{"network-policies":{"network-policy":[{"uuid":"`+uid1+`"}]}}}`)
	f.Add(uint8(4), coe, "")
	methods := []string{"GET", "PUT", "POST", "PATCH", "DELETE"}
	f.Fuzz(func(t *testing.T, choice uint8, path, body string) {
		method := methods[int(choice)%len(methods)]
		if !strings.HasPrefix(path, "/rest") {
			return
		}
		r, err := http.NewRequestWithContext(t.Context(), method, "http://127.0.0.1"+path, strings.NewReader(body))
		if err != nil {
			return
		}
		r.SetBasicAuth("admin", "admin")
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		b.ServeHTTP(w, r)
		require.Less(t, w.Code, 500, w.Body.String())
		if w.Code == http.StatusCreated || w.Code == http.StatusNoContent {
			got := (&bed{b.Server, t, b.store}).do("GET", "/rests/data", "")
			require.Equal(t, 200, got.status, got.body)
			require.True(t, json.Valid([]byte(got.body)), got.body)
		}
	})
}
