package kube

import (
	"context"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

// issuer is the issuer of service account tokens.
const issuer = "https://kubernetes.default.svc"

// leeway is how long the API server accepts an expired token.
const leeway = time.Minute

// callTimeout bounds one request. A busy machine has needed more than 30 s for one.
const callTimeout = 2 * time.Minute

// Kubeconfig returns the path of the administrator's kubeconfig.
func (c *ControlPlane) Kubeconfig() string { return filepath.Join(c.dir, "admin.kubeconfig") }

// WriteKubeconfig writes a kubeconfig with a token, and returns its path, which is new.
func (c *ControlPlane) WriteKubeconfig(token string) (path string, err error) {
	file, err := os.CreateTemp(c.dir, "*.kubeconfig")
	if err != nil {
		return "", fmt.Errorf("write kubeconfig: %w", err)
	}
	if err := file.Close(); err != nil {
		return "", fmt.Errorf("write kubeconfig: %w", err)
	}
	config := c.RESTConfig()
	config.BearerToken = token
	return file.Name(), writeKubeconfig(file.Name(), config)
}

func writeKubeconfig(path string, config *rest.Config) error {
	const name = "test"
	k := api.NewConfig()
	k.Clusters[name] = &api.Cluster{Server: config.Host, CertificateAuthorityData: config.CAData}
	k.AuthInfos[name] = &api.AuthInfo{Token: config.BearerToken}
	k.Contexts[name] = &api.Context{Cluster: name, AuthInfo: name}
	k.CurrentContext = name
	if err := clientcmd.WriteToFile(*k, path); err != nil {
		return fmt.Errorf("write kubeconfig: %w", err)
	}
	return nil
}

// ServiceAccountToken returns a token of an existing service account, signed with the API server's key, with
// any lifetime; the API allows at least ten minutes. The API server caches accepted tokens, so it
// rejects an expired token, or the token of a deleted account, at most ten seconds late.
func (c *ControlPlane) ServiceAccountToken(ctx context.Context, namespace, name string, lifetime time.Duration) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	account, err := c.client.CoreV1().ServiceAccounts(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("make token of service account %s/%s: %w", namespace, name, err)
	}
	now := time.Now()
	type object map[string]any
	token, err := c.pki.sign(object{
		"iss": issuer,
		"sub": "system:serviceaccount:" + namespace + ":" + name,
		"aud": []string{issuer},
		"iat": now.Unix(),
		"exp": now.Add(lifetime - leeway).Unix(),
		"kubernetes.io": object{
			"namespace":      namespace,
			"serviceaccount": object{"name": name, "uid": account.UID},
		},
	})
	if err != nil {
		return "", fmt.Errorf("sign token of service account %s/%s: %w", namespace, name, err)
	}
	return token, nil
}

// sign creates a JSON web token from claims (RFC 7519, ES256 of RFC 7518 section 3.4).
func (p *pki) sign(claims any) (string, error) {
	payload, err := json.Marshal(claims)
	if err != nil {
		return "", err
	}
	encode := base64.RawURLEncoding.EncodeToString
	signed := encode([]byte(`{"alg":"ES256","typ":"JWT"}`)) + "." + encode(payload)
	digest := sha256.Sum256([]byte(signed))
	r, s, err := ecdsa.Sign(rand.Reader, p.key, digest[:])
	if err != nil {
		return "", err
	}
	signature := make([]byte, 64)
	r.FillBytes(signature[:32])
	s.FillBytes(signature[32:])
	return signed + "." + encode(signature), nil
}
