package hostile_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
	"github.com/coe-bridge/coe-bridge/test/lab/bridgetest"
	"github.com/coe-bridge/coe-bridge/test/lab/etcd"
	"github.com/coe-bridge/coe-bridge/test/lab/ovsdb"
	"github.com/coe-bridge/coe-bridge/test/lab/patience"
)

const (
	replicasWithin = patience.Patience
	chosenPrefix   = "/coe-bridge/v1/records/chosen/"
	podsPrefix     = "/coe-bridge/v1/config/pod:coe/pods="
)

// pair has two replicas of the bridge on one etcd and one northbound database.
type pair struct {
	t        *testing.T
	etcd     *clientv3.Client
	replicas []*bridgetest.Process
}

func startPair(t *testing.T) *pair {
	t.Helper()
	nb := ovsdb.Start(t)
	servers, err := etcd.Run(t.Context(), 1)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, servers.Close()) })
	p := &pair{t: t}
	p.etcd, err = servers.Client()
	require.NoError(t, err)
	t.Cleanup(func() { _ = p.etcd.Close() })
	for range 2 {
		p.replicas = append(p.replicas, bridgetest.Serve(t, "--etcd-endpoints", servers.Endpoints()[0],
			"--backend", "ovn", "--ovn-nb", nb.Endpoint(), "--address-reuse-delay", "1s"))
	}
	p.write(http.MethodPut, "dhcp_allocation_pool:dhcp_allocation_pool/network/default",
		`{"network":[{"network-id":"default","allocation-pool":[{"subnet":"10.42.0.0/16"}]}]}`)
	return p
}

// write changes the config tree through the replica that was started last.
func (p *pair) write(method, path, body string) {
	p.t.Helper()
	status, answer := p.replicas[1].Bridge().Do(method, "/restconf/config/"+path, body)
	require.Equal(p.t, 2, status/100, "%s %s: %d %s", method, path, status, answer)
}

func (p *pair) putPod(uid, namespace, name string) {
	p.t.Helper()
	p.write(http.MethodPut, "pod:coe/pods/"+uid, fmt.Sprintf(
		`{"pods":[{"uid":%q,"name":%q,"network-NS":%q,"host-ip-address":"192.168.33.11"}]}`, uid, name, namespace))
}

// awaitSync waits until every replica reports that the backend is in sync, and that exactly these
// records are set aside.
func (p *pair) awaitSync(aside ...string) {
	p.t.Helper()
	for _, r := range p.replicas {
		bridgetest.Await(p.t, 20*time.Millisecond, replicasWithin, "in sync", func() error {
			st := r.Bridge().Status()
			var problems []string
			for _, one := range st.Problems {
				problems = append(problems, one.UID)
			}
			if !st.InSync || !slices.Equal(problems, aside) {
				return fmt.Errorf("in sync %t, problems %v", st.InSync, st.Problems)
			}
			return nil
		})
	}
}

// interfaces returns the leases of the pods, by interface name.
func (p *pair) interfaces() map[string]string {
	p.t.Helper()
	var top struct {
		Leases []struct {
			Name      string   `json:"interface-name"`
			MAC       string   `json:"mac-address"`
			Addresses []string `json:"ip-address"`
			Released  string
		} `json:"lease"`
	}
	p.replicas[1].Bridge().Get("operational/coe-status:leases", &top)
	all := map[string]string{}
	for _, l := range top.Leases {
		if l.Released == "" {
			all[l.Name] = fmt.Sprint(l.MAC, l.Addresses)
		}
	}
	return all
}

// takeOver kills the leader and starts it again.
func (p *pair) takeOver() {
	p.t.Helper()
	for _, r := range p.replicas {
		r.Kill()
		r.Start()
	}
}

func (p *pair) get(key string) string {
	p.t.Helper()
	found, err := p.etcd.Get(p.t.Context(), key)
	require.NoError(p.t, err)
	require.Len(p.t, found.Kvs, 1, key)
	return string(found.Kvs[0].Value)
}

func (p *pair) put(key, value string) {
	p.t.Helper()
	_, err := p.etcd.Put(p.t.Context(), key, value)
	require.NoError(p.t, err)
}

func podUID(n int) string { return fmt.Sprintf("4e91c000-c0e0-4000-8000-%012d", n) }

// TestNamespacesThatShortenToOne: an older release would shorten the name of a long namespace to the
// name of another namespace. A tenant creates both. Each has its own vpn-instance, whichever replica
// leads, and all other namespaces are in sync.
func TestNamespacesThatShortenToOne(t *testing.T) {
	p := startPair(t)
	long := strings.Repeat("tenant-", 9)
	short := netvirt.VPNNames(long)[len(netvirt.VPNNames(long))-1]
	p.putPod(podUID(1), "default", "bystander")
	p.putPod(podUID(2), long, "one")
	p.putPod(podUID(3), short, "two")
	p.awaitSync()
	before := p.interfaces()
	require.Len(t, before, 3)

	p.takeOver()
	p.awaitSync()
	require.Equal(t, before, p.interfaces())

	p.write(http.MethodDelete, "pod:coe/pods/"+podUID(3), "")
	p.awaitSync()
	p.takeOver()
	p.putPod(podUID(4), "default", "another")
	p.awaitSync()
	delete(before, short+":two")
	after := p.interfaces()
	require.Contains(t, after, "default:another")
	delete(after, "default:another")
	require.Equal(t, before, after)
}

// TestOlderNameOfAnotherNamespace: an older release gave the vpn-instance of a long namespace the name
// of another namespace. The pods of the other namespace are refused until the long one is deleted. No
// third namespace is affected.
func TestOlderNameOfAnotherNamespace(t *testing.T) {
	p := startPair(t)
	long := strings.Repeat("tenant-", 9)
	short := netvirt.VPNNames(long)[1]
	p.putPod(podUID(1), "default", "bystander")
	p.putPod(podUID(2), long, "one")
	p.awaitSync()
	before := p.interfaces()
	for _, r := range p.replicas {
		r.Kill()
	}
	_, err := p.etcd.Delete(t.Context(), chosenPrefix+"vpn/"+netvirt.VPNName(long))
	require.NoError(t, err)
	p.put(chosenPrefix+"vpn/"+short, fmt.Sprintf(`{"name":%q,"namespace":%q,"rd":99}`, short, long))
	for _, r := range p.replicas {
		r.Start()
	}
	p.awaitSync()
	require.Equal(t, before, p.interfaces())

	p.putPod(podUID(3), short, "two")
	bridgetest.Await(t, 20*time.Millisecond, replicasWithin, "the leader refuses it", func() error {
		for _, r := range p.replicas {
			for _, one := range r.Bridge().Status().Problems {
				if one.UID == podUID(3) && one.Reason == "NameTaken" && strings.Contains(one.Message, long) {
					return nil
				}
			}
		}
		return errors.New("the leader does not refuse it")
	})
	require.Equal(t, before, p.interfaces())

	p.write(http.MethodDelete, "pod:coe/pods/"+podUID(2), "")
	p.awaitSync()
	require.Contains(t, p.interfaces(), short+":two")
}

// TestDamagedDatastore damages records of every kind while no replica runs. Both replicas start and
// report the damage. Every pod keeps its addresses, and the leader repairs the records.
func TestDamagedDatastore(t *testing.T) {
	p := startPair(t)
	for n := range 6 {
		p.putPod(podUID(n), fmt.Sprint("ns-", n%2), fmt.Sprint("pod-", n))
	}
	p.awaitSync()
	before := p.interfaces()
	require.Len(t, before, 6)
	bridgetest.Await(t, 20*time.Millisecond, replicasWithin, "the pods are confirmed", func() error {
		all, err := p.etcd.Get(t.Context(), "/coe-bridge/v1/records/confirmed/4e91", clientv3.WithPrefix(), clientv3.WithCountOnly())
		if err == nil && all.Count != 6 {
			err = fmt.Errorf("%d are", all.Count)
		}
		return err
	})
	for _, r := range p.replicas {
		r.Kill()
	}
	lease := func(n int) string { return chosenPrefix + "lease/" + podUID(n) + "/" + podUID(n) }
	elan := chosenPrefix + "elan/192.168.33.11:ns-0"
	wasELAN := p.get(elan)
	value := p.get(lease(0))
	p.put(lease(0), value[:len(value)/2])
	_, err := p.etcd.Delete(t.Context(), lease(1))
	require.NoError(t, err)
	p.put(lease(2), p.get(lease(3)))
	p.put(elan, p.get(chosenPrefix+"elan/192.168.33.11:ns-1"))
	_, err = p.etcd.Delete(t.Context(), chosenPrefix+"vpn/ns-1")
	require.NoError(t, err)
	p.put(chosenPrefix+"wonder/what", `{"this":"is"}`)
	p.put("/coe-bridge/v1/records/confirmed/network/", "{")
	p.put(podsPrefix+podUID(9), "{")

	for _, r := range p.replicas {
		r.Start()
	}
	p.awaitSync("pod:coe/pods="+podUID(9), "wonder/what")
	require.Equal(t, before, p.interfaces())
	require.JSONEq(t, wasELAN, p.get(elan))
	require.JSONEq(t, field(t, value, "addresses"), field(t, p.get(lease(0)), "addresses"))
	for _, record := range []string{lease(0), lease(1), lease(2), elan, chosenPrefix + "vpn/ns-1"} {
		record = strings.TrimPrefix(record, chosenPrefix)
		bridgetest.Await(t, 20*time.Millisecond, replicasWithin, "a replica logs "+record, func() error {
			if !slices.ContainsFunc(p.replicas, func(r *bridgetest.Process) bool { return r.Log().Says(0, "is set aside", record) }) {
				return errors.New("no replica does")
			}
			return nil
		})
	}
	p.write(http.MethodDelete, "pod:coe/pods/"+podUID(9), "")
	p.putPod(podUID(7), "ns-1", "another")
	p.awaitSync("wonder/what")
	require.Len(t, p.interfaces(), 7)
}

// field returns a field of a record.
func field(t *testing.T, record, name string) string {
	t.Helper()
	fields := map[string]json.RawMessage{}
	require.NoError(t, json.Unmarshal([]byte(record), &fields))
	return string(fields[name])
}
