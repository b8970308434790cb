package restconf

import (
	"bytes"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/test/lab/patience"
)

// The entities below are as OpenDaylight's own Kubernetes watcher writes them: the
// types are its documents, field by field, so that what encoding/json makes of an address
// that isn't known (""), of a name that isn't there (null), and of lists with nothing in
// them ([], [""]) is what the watcher sends.
type (
	watchedPod struct {
		UID            string             `json:"uid"`
		ClusterID      string             `json:"cluster-id"`
		Name           string             `json:"name"`
		HostIPAddress  string             `json:"host-ip-address,omitempty"`
		NetworkNS      string             `json:"network-NS"`
		PortMACAddress string             `json:"port-mac-address"`
		Interfaces     []watchedInterface `json:"interface"`
	}
	watchedInterface struct {
		UID         string `json:"uid"`
		IPAddress   net.IP `json:"ip-address,omitempty"`
		NetworkID   string `json:"network-id"`
		NetworkType string `json:"network-type"`
	}
	watchedNode struct {
		UID               string `json:"k8s-node:uid"`
		ClusterID         string `json:"k8s-node:cluster-id"`
		PodCIDR           string `json:"k8s-node:pod-cidr,omitempty"`
		HostName          string `json:"k8s-node:host-name,omitempty"`
		InternalIPAddress net.IP `json:"k8s-node:internal-ip-address,omitempty"`
		ExternalIPAddress net.IP `json:"k8s-node:external-ip-address,omitempty"`
	}
	watchedService struct {
		UID                   string               `json:"service:uid"`
		ClusterID             string               `json:"service:cluster-id"`
		Name                  string               `json:"service:name"`
		ClusterIPAddress      net.IP               `json:"service:cluster-ip-address"`
		NetworkNS             string               `json:"service:network-NS"`
		ExternalIPAddress     []net.IP             `json:"service:external-ip-address,omitempty"`
		LoadBalancerIPAddress net.IP               `json:"service:load-balancer-IP,omitempty"`
		IngressIPAddress      []net.IP             `json:"service:ingress-ip-address,omitempty"`
		ServicePorts          []watchedServicePort `json:"service:service-ports"`
	}
	watchedServicePort struct {
		Name       string `json:"service:name"`
		Port       int32  `json:"service:port"`
		TargetPort string `json:"service:target-port"`
		NodePort   int32  `json:"service:node-port"`
	}
	watchedEndpoints struct {
		UID               string                   `json:"service:uid"`
		ClusterID         string                   `json:"service:cluster-id"`
		Name              string                   `json:"service:name"`
		NetworkNS         string                   `json:"service:network-NS"`
		EndpointAddresses []watchedEndpointAddress `json:"service:endpoint-addresses,omitempty"`
		EndpointPorts     []watchedEndpointPort    `json:"service:endpoint-ports,omitempty"`
	}
	watchedEndpointAddress struct {
		IPAddress net.IP  `json:"service:ip-address"`
		HostName  string  `json:"service:host-name"`
		NodeName  *string `json:"service:node-name"`
	}
	watchedEndpointPort struct {
		Name string `json:"service:name"`
		Port int32  `json:"service:port"`
	}
	watchedCluster struct {
		ClusterID string `json:"cluster-id"`
	}

	// The documents of its first release, before cluster-id: an address that isn't
	// known is "" there too.
	firstPod struct {
		UID        string           `json:"uid"`
		Interfaces []firstInterface `json:"interface"`
	}
	firstInterface struct {
		UID            string `json:"uid"`
		IPAddress      net.IP `json:"ip-address"`
		NetworkID      string `json:"network-id"`
		NetworkType    string `json:"network-type"`
		SegmentationID uint32 `json:"segmentation-id"`
	}
	firstNode struct {
		UID               string `json:"uid"`
		HostName          string `json:"host-name"`
		InternalIPAddress net.IP `json:"internal-ip-address"`
		ExternalIPAddress net.IP `json:"external-ip-address"`
	}
)

const (
	watchedClusterID = "00000000-0000-0000-0000-000000000001"
	noNetwork        = "00000000-0000-0000-0000-000000000000"

	watchedPods      = "/restconf/config/pod:coe/pods/"
	watchedNodes     = "/restconf/config/k8s-node:k8s-nodes-info/k8s-nodes/"
	watchedServices  = "/restconf/config/service:service-information/services/"
	watchedEndpoint  = "/restconf/config/service:endpoints-info/endpoints/"
	watchedClusters  = "/restconf/config/k8s-cluster:k8s-clusters-info/"
	ofCluster        = `"cluster-id":"` + watchedClusterID + `"`
	ofDefault        = ofCluster + `,"name":"web","network-NS":"default"`
	emptyPortMAC     = `"port-mac-address":""`
	interfaceOfVXLAN = `"network-id":"` + noNetwork + `","network-type":"VXLAN"`
)

// watched are requests of the watcher, each a PUT to the path with the uid appended, and
// what is stored then.
func watched() []struct {
	name, path, member string
	entity             any
	stored             string
} {
	node := "node1"
	pod := func(change func(*watchedPod)) watchedPod {
		p := watchedPod{UID: uid1, ClusterID: watchedClusterID, Name: "web", NetworkNS: "default",
			Interfaces: []watchedInterface{{UID: uid1, NetworkID: noNetwork, NetworkType: "VXLAN"}}}
		change(&p)
		return p
	}
	service := func(change func(*watchedService)) watchedService {
		s := watchedService{UID: uid1, ClusterID: watchedClusterID, Name: "web", NetworkNS: "default", ServicePorts: []watchedServicePort{}}
		change(&s)
		return s
	}
	endpoints := func(addresses []watchedEndpointAddress, ports []watchedEndpointPort) watchedEndpoints {
		return watchedEndpoints{uid1, watchedClusterID, "web", "default", addresses, ports}
	}
	ofUID := `"uid":"` + uid1 + `",`
	return []struct {
		name, path, member string
		entity             any
		stored             string
	}{
		{"pod that isn't scheduled", watchedPods, "pods", pod(func(*watchedPod) {}),
			`{` + ofUID + ofDefault + `,` + emptyPortMAC + `,"interface":[{` + ofUID + interfaceOfVXLAN + `}]}`},
		{"pod that runs", watchedPods, "pods", pod(func(p *watchedPod) {
			p.HostIPAddress, p.Interfaces[0].IPAddress = "192.168.33.12", net.ParseIP("10.11.2.28")
		}), `{` + ofUID + ofDefault + `,` + emptyPortMAC + `,"host-ip-address":"192.168.33.12","interface":[{` + ofUID + interfaceOfVXLAN + `,"ip-address":"10.11.2.28"}]}`},
		{"pod with an IPv6 address", watchedPods, "pods", pod(func(p *watchedPod) { p.Interfaces[0].IPAddress = net.ParseIP("2001:DB8::5") }),
			`{` + ofUID + ofDefault + `,` + emptyPortMAC + `,"interface":[{` + ofUID + interfaceOfVXLAN + `,"ip-address":"2001:db8::5"}]}`},
		{"pod without a namespace", watchedPods, "pods", pod(func(p *watchedPod) { p.NetworkNS = "" }),
			`{` + ofUID + ofCluster + `,"name":"web","network-NS":"",` + emptyPortMAC + `,"interface":[{` + ofUID + interfaceOfVXLAN + `}]}`},
		{"pod of the first release", watchedPods, "pods", firstPod{uid1, []firstInterface{{uid1, nil, noNetwork, "VXLAN", 0}}},
			`{` + ofUID + `"interface":[{` + ofUID + interfaceOfVXLAN + `,"segmentation-id":0}]}`},
		{"node", watchedNodes, "k8s-node:k8s-nodes",
			watchedNode{uid1, watchedClusterID, "10.11.2.0/24", "node1", net.ParseIP("192.168.33.12"), net.ParseIP("192.0.2.9")},
			`{` + ofUID + ofCluster + `,"pod-cidr":"10.11.2.0/24","host-name":"node1","internal-ip-address":"192.168.33.12","external-ip-address":"192.0.2.9"}`},
		{"node of which nothing is known", watchedNodes, "k8s-node:k8s-nodes", watchedNode{UID: uid1, ClusterID: watchedClusterID}, `{` + ofUID + ofCluster + `}`},
		{"node of the first release", watchedNodes, "k8s-nodes", firstNode{uid1, "node1", net.ParseIP("192.168.33.12"), nil},
			`{` + ofUID + `"host-name":"node1","internal-ip-address":"192.168.33.12"}`},
		{"service", watchedServices, "service:services", service(func(s *watchedService) {
			s.ClusterIPAddress, s.LoadBalancerIPAddress = net.ParseIP("10.96.0.10"), net.ParseIP("192.0.2.3")
			s.ExternalIPAddress, s.IngressIPAddress = []net.IP{net.ParseIP("192.0.2.1")}, []net.IP{net.ParseIP("192.0.2.4")}
			s.ServicePorts = []watchedServicePort{{"http", 80, "8080", 30080}, {"", 53, "dns", 0}}
		}), `{` + ofUID + ofDefault + `,"cluster-ip-address":"10.96.0.10","load-balancer-IP":"192.0.2.3","external-ip-address":["192.0.2.1"],` +
			`"ingress-ip-address":["192.0.2.4"],"service-ports":[{"name":"http","port":80,"target-port":"8080","node-port":30080},` +
			`{"name":"","port":53,"target-port":"dns","node-port":0}]}`},
		{"headless service without ports", watchedServices, "service:services", service(func(*watchedService) {}), `{` + ofUID + ofDefault + `}`},
		{"service behind a host name", watchedServices, "service:services", service(func(s *watchedService) {
			s.ClusterIPAddress = net.ParseIP("10.96.0.10")
			s.IngressIPAddress, s.ExternalIPAddress = []net.IP{nil}, []net.IP{net.ParseIP("192.0.2.1"), nil}
		}), `{` + ofUID + ofDefault + `,"cluster-ip-address":"10.96.0.10","external-ip-address":["192.0.2.1"]}`},
		{"endpoints", watchedEndpoint, "service:endpoints", endpoints(
			[]watchedEndpointAddress{{net.ParseIP("10.11.2.28"), "h", &node}, {net.ParseIP("10.11.2.29"), "", nil}},
			[]watchedEndpointPort{{"http", 8080}, {"", 53}},
		), `{` + ofUID + ofDefault + `,"endpoint-addresses":[{"ip-address":"10.11.2.28","host-name":"h","node-name":"node1"},` +
			`{"ip-address":"10.11.2.29","host-name":""}],"endpoint-ports":[{"name":"http","port":8080},{"name":"","port":53}]}`},
		{"endpoints without an address", watchedEndpoint, "service:endpoints", endpoints([]watchedEndpointAddress{{nil, "", nil}}, nil),
			`{` + ofUID + ofDefault + `,"endpoint-addresses":[{"host-name":""}]}`},
		{"endpoints of nobody", watchedEndpoint, "service:endpoints", endpoints(nil, nil), `{` + ofUID + ofDefault + `}`},
	}
}

// asWatcher makes a request as the watcher does: with a Content-Type and credentials, and
// without an Accept, whatever the method.
func asWatcher(t *testing.T, method, url string, body any) int {
	t.Helper()
	var sent io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		require.NoError(t, err)
		sent = bytes.NewBuffer(text)
	}
	r, err := http.NewRequestWithContext(t.Context(), method, url, sent)
	require.NoError(t, err)
	r.Header.Set("Content-Type", "application/json")
	r.SetBasicAuth("admin", "admin")
	client := http.Client{Timeout: patience.Patience}
	defer client.CloseIdleConnections()
	answer, err := client.Do(r)
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	return answer.StatusCode
}

// TestWatcher has the watcher's requests taken as they are: what is new, what is put
// again, and what is deleted.
func TestWatcher(t *testing.T) {
	for _, c := range watched() {
		t.Run(c.name, func(t *testing.T) {
			b := newBed(t)
			url := served(t, b.Server) + c.path + uid1
			body := map[string]any{c.member: []any{c.entity}}
			require.Equal(t, 201, asWatcher(t, "PUT", url, body))
			require.Equal(t, 200, asWatcher(t, "PUT", url, body))
			got := b.do("GET", c.path+uid1, "")
			require.Equal(t, 200, got.status, got.body)
			var stored map[string][]json.RawMessage
			require.NoError(t, json.Unmarshal([]byte(got.body), &stored))
			for _, entries := range stored {
				require.Len(t, entries, 1)
				require.JSONEq(t, c.stored, string(entries[0]))
			}
			require.Equal(t, 200, asWatcher(t, "DELETE", url, nil))
			require.Equal(t, 404, asWatcher(t, "DELETE", url, nil))
		})
	}
}

// The watcher puts its cluster first, to a container with a slash at its end.
func TestWatcherPutsItsCluster(t *testing.T) {
	b := newBed(t)
	url := served(t, b.Server) + watchedClusters
	body := map[string]any{"k8s-clusters-info": map[string]any{"k8s-clusters": []watchedCluster{{watchedClusterID}}}}
	require.Equal(t, 201, asWatcher(t, "PUT", url, body))
	require.Equal(t, 200, asWatcher(t, "PUT", url, body), "whenever it starts")
	require.JSONEq(t, `{"k8s-clusters-info":{"k8s-clusters":[{`+ofCluster+`}]}}`, b.do("GET", watchedClusters, "").body)
}
