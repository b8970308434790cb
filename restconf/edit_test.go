package restconf

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/test/lab/patience"
	"github.com/coe-bridge/coe-bridge/yang"
)

// A POST of entries leaves the container's own document as it is: or else all who
// POST would stand in each other's way.
func TestPostOfEntriesLeavesTheContainer(t *testing.T) {
	b := newBed(t)
	top := b.cfg.Schema.Module("pod").Child("coe")
	require.Equal(t, 204, b.do("POST", coe, pod(uid1)).status)
	made := b.store.Get(top)
	require.NotNil(t, made, "the container is made with its first entry")
	require.Equal(t, 204, b.do("POST", coe, pod(uid2)).status)
	require.Equal(t, made.ModRevision, b.store.Get(top).ModRevision)

	require.Equal(t, 200, b.do("DELETE", coe, "").status)
	require.Equal(t, 204, b.do("POST", coe, pod(uid2)).status)
	require.JSONEq(t, `{"coe":`+pod(uid2)+`}`, b.do("GET", coe, "").body)
}

// The time for a POST of many children to where many are is linear in both: the
// square of these would be minutes of a processor.
func TestPostOfManyToMany(t *testing.T) {
	b := newBed(t)
	many := func(member, format string, part int) string {
		values := make([]string, 40000)
		for i := range values {
			values[i] = fmt.Sprintf(format, fmt.Sprintf("%08x-0000-4000-8000-%012x", part, i))
		}
		return `{"` + member + `":[` + strings.Join(values, ",") + `]}`
	}
	service := services + "/services/" + uid1
	for _, c := range []struct{ entry, body, member, format string }{
		{pods + uid1, pod(uid1), "interface", `{"uid":"%s"}`},
		{service, `{"services":[{"uid":"` + uid1 + `"}]}`, "endpoints", `"%s"`},
	} {
		require.Equal(t, 201, b.do("PUT", c.entry, c.body).status)
		begin := processorTime(t)
		require.Equal(t, 204, b.do("POST", c.entry, many(c.member, c.format, 1)).status)
		require.Equal(t, 204, b.do("POST", c.entry, many(c.member, c.format, 2)).status)
		require.Equal(t, 409, b.do("POST", c.entry, many(c.member, c.format, 1)).status)
		require.Less(t, processorTime(t)-begin, 20*time.Second)
	}
}

// Entries can be deleted although those that stay don't pass the check, as after
// a change of the settings that it goes by.
func TestDeleteIsNotChecked(t *testing.T) {
	const dhcp = "/restconf/config/dhcp_allocation_pool:dhcp_allocation_pool"
	var refusal error
	b := newBed(t, func(c *Config) {
		c.Checks = map[string]func([]*yang.Data) error{
			"dhcp_allocation_pool:dhcp_allocation_pool": func([]*yang.Data) error { return refusal },
		}
	})
	require.Equal(t, 201, b.do("PUT", dhcp, `{"network":[{"network-id":"a"},{"network-id":"b"},{"network-id":"c"}]}`).status)
	refusal = errors.New("they don't go together")
	require.Equal(t, 400, b.do("PUT", dhcp+"/network/a", `{"network":[{"network-id":"a"}]}`).status)
	require.Equal(t, 200, b.do("DELETE", dhcp+"/network/a", "").status)
	require.JSONEq(t, `{"dhcp_allocation_pool":{"network":[{"network-id":"b"},{"network-id":"c"}]}}`, b.do("GET", dhcp, "").body)
}

// slow is a body that takes a while to come.
type slow struct {
	io.Reader
	wait time.Duration
}

func (s *slow) Read(p []byte) (int, error) {
	<-time.After(s.wait)
	s.wait = 0
	return s.Reader.Read(p)
}

// The time for the work begins when the body is there.
func TestSlowBody(t *testing.T) {
	const timeout = 2 * time.Second
	b := newBed(t, func(c *Config) { c.Timeout = timeout })
	body := func(r *http.Request) { r.Body = io.NopCloser(&slow{r.Body, 2 * timeout}) }
	require.Eventually(t, func() bool { return b.do("PUT", pods+uid1, pod(uid1), body).status/100 == 2 }, patience.Patience, time.Millisecond)
}

func TestPathOfAList(t *testing.T) {
	b := newBed(t)
	got := b.do("GET", coeRFC+"/pods/uid", "")
	require.Equal(t, 400, got.status)
	require.Equal(t, "/pod:coe/pods", got.path())
	require.Equal(t, "/pod:coe/pods", b.do("GET", coeRFC+"/pods", "").path(), "no entry is there")
	keyless := b.do("DELETE", "/rests/data/service:service-information/services="+uid1+"/service-ports", "")
	require.Equal(t, 405, keyless.status)
	require.Contains(t, keyless.body, "have no key")
}
