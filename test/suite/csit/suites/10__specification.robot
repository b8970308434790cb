*** Settings ***
Documentation       The use cases TC1 to TC4 of the specification "Netvirt COE Integration", one after the other.
Resource            ../resources/netvirt.resource

Suite Setup         Write Pool And Node
Suite Teardown      Remove All Entries

Test Tags           specification


*** Variables ***
${ELAN}                 ${NODE_ADDRESS}:${NAMESPACE}
${INTERFACE}            ${NAMESPACE}:${POD_NAME}
${SECOND_INTERFACE}     ${NAMESPACE}:${SECOND_POD_NAME}
${SECOND_POD}           ${DRAFT02.data}/${POD.container}/pods/${SECOND_POD_UID}
${SERVICE_ENTRY}        ${DRAFT02.data}/${SERVICE.container}/services/${SERVICE_UID}


*** Test Cases ***
TC1 Create A Pod Within A Node Under A Namespace
    [Documentation]    The first pod of a namespace on a node causes an elan-instance and a vpn-instance.
    [Tags]    odl    tc1
    ${body}=    Body    pod.json
    Request    POST    ${DRAFT02.data}/${POD.container}    ${body}    expected=204
    ${object}=    Wait For Object    ${ELAN_INSTANCES}    ${ELAN}
    Should Be Equal    ${object}[segment-type]    elan:segment-type-vxlan
    ${object}=    Wait For Object    ${VPN_INSTANCES}    ${NAMESPACE}
    Should Be Equal    ${object}[type]    l3
    ${object}=    Wait For Object    ${INTERFACES}    ${INTERFACE}
    Should Be Equal    ${object}[type]    iana-if-type:l2vlan
    Should Be Equal    ${object}[odl-interface:l2vlan-mode]    trunk
    ${object}=    Wait For Object    ${ELAN_INTERFACES}    ${INTERFACE}
    Should Be Equal    ${object}[elan-instance-name]    ${ELAN}

TC1 The Pod Is In Its VPN With Its Address
    [Documentation]    OpenDaylight creates vpn-interfaces only when the switch has the port.
    [Tags]    tc1
    ${object}=    Wait For Object    ${VPN_INTERFACES}    ${INTERFACE}
    Should Be Equal    ${object}[vpn-instance-names][0][vpn-name]    ${NAMESPACE}
    VAR    ${adjacency}    ${object}[odl-l3vpn:adjacency][0]
    Should Be Equal    ${adjacency}[ip_address]    ${POD_ADDRESS}/32
    ${object}=    Wait For Object    ${ELAN_INTERFACES}    ${INTERFACE}
    VAR    ${entry}    ${object}[static-mac-entries][0]
    Should Be Equal    ${entry}[ip-prefix]    ${POD_ADDRESS}
    Should Be Equal    ${entry}[mac-address]    ${adjacency}[mac_address]

TC1 The Backend Has The Pod
    [Tags]    tc1    ovn
    Wait For Sync
    FOR    ${kind}    IN    ${INTERFACES}    ${ELAN_INTERFACES}    ${VPN_INTERFACES}
        Wait For Confirmation    ${kind}    ${INTERFACE}
    END
    Wait For Confirmation    ${ELAN_INSTANCES}    ${ELAN}
    Wait For Confirmation    ${VPN_INSTANCES}    ${NAMESPACE}
    Row Should Exist    Logical_Switch_Port    ${INTERFACE}
    ${addresses}=    Northbound    lsp-get-addresses    ${INTERFACE}
    Should Contain    ${addresses}    ${POD_ADDRESS}

TC1 A Second Pod Of The Namespace Joins Both Instances
    [Tags]    odl    tc1
    ${body}=    Body    second-pod.json
    Request    POST    ${DRAFT02.data}/${POD.container}    ${body}    expected=204
    Wait For Object    ${INTERFACES}    ${SECOND_INTERFACE}
    ${object}=    Wait For Object    ${ELAN_INTERFACES}    ${SECOND_INTERFACE}
    Should Be Equal    ${object}[elan-instance-name]    ${ELAN}
    ${answer}=    Request    GET    ${DRAFT02.data}/${ELAN_INSTANCES.path}    expected=200
    ${of_namespace}=    Evaluate
    ...    [e for e in $answer.json()['elan-instances']['elan-instance'] if e['elan-instance-name'].endswith(':${NAMESPACE}')]
    Length Should Be    ${of_namespace}    1

TC2 Attach Pods To A Service
    [Tags]    tc2
    ${body}=    Body    service-with-pods.json
    Request    PUT    ${SERVICE_ENTRY}    ${body}    expected=201
    ${ports}=    Wait For Object    ${FLOATING}    ${NAMESPACE}
    ${external}=    Evaluate
    ...    {p['port-name']: p['internal-to-external-port-map'][0]['external-ip'] for p in $ports['ports']}
    VAR    &{want}    ${INTERFACE}=${SERVICE_ADDRESS}    ${SECOND_INTERFACE}=${SERVICE_ADDRESS}
    Dictionaries Should Be Equal    ${external}    ${want}
    Endpoints Should Be    ${POD_ADDRESS}    ${SECOND_POD_ADDRESS}

TC2 The Backend Has The Service
    [Tags]    tc2    ovn
    Wait For Sync
    Wait For Confirmation    ${SERVICES}    ${SERVICE_UID}
    ${balancers}=    Northbound    --bare    --columns\=vips    list    Load_Balancer
    Should Contain    ${balancers}    ${SERVICE_ADDRESS}:80
    Should Contain    ${balancers}    ${POD_ADDRESS}:8080
    Should Contain    ${balancers}    ${SECOND_POD_ADDRESS}:8080

TC3 Remove Pods From The Service
    [Tags]    tc3
    ${value}=    Body As Value    service-with-pods.json
    Remove From List    ${value}[service:services][0][endpoints]    0
    ${body}=    Evaluate    json.dumps($value)
    Request    PUT    ${SERVICE_ENTRY}    ${body}    expected=200
    Wait Until Keyword Succeeds    ${PATIENCE}    50ms    Endpoints Should Be    ${SECOND_POD_ADDRESS}
    ${ports}=    Wait For Object    ${FLOATING}    ${NAMESPACE}
    Length Should Be    ${ports}[ports]    1
    Should Be Equal    ${ports}[ports][0][port-name]    ${SECOND_INTERFACE}
    ${body}=    Body    service.json
    Request    PUT    ${SERVICE_ENTRY}    ${body}    expected=200
    Wait For Removal    ${FLOATING}    ${NAMESPACE}
    ${object}=    Wait For Object    ${SERVICES}    ${SERVICE_UID}
    Should Not Contain    ${object}[vip][0]    endpoint

TC3 The Load Balancer Has No Endpoints
    [Tags]    tc3    ovn
    Wait For Sync
    ${balancers}=    Northbound    --bare    --columns\=vips    list    Load_Balancer
    Should Contain    ${balancers}    ${SERVICE_ADDRESS}:80
    Should Not Contain    ${balancers}    :8080

TC4 Delete A Pod From A Namespace
    [Tags]    odl    tc4
    Request    DELETE    ${SECOND_POD}    expected=200
    Request    GET    ${SECOND_POD}    expected=404
    Wait For Object    ${INTERFACES}    ${INTERFACE}
    Wait For Object    ${ELAN_INSTANCES}    ${ELAN}
    Wait For Object    ${VPN_INSTANCES}    ${NAMESPACE}

TC4 The Pod's Interfaces Are Removed
    [Documentation]    OpenDaylight removes them only if a switch had the port; otherwise its renderer fails.
    [Tags]    tc4
    Wait For Removal    ${INTERFACES}    ${SECOND_INTERFACE}
    Wait For Removal    ${ELAN_INTERFACES}    ${SECOND_INTERFACE}
    Wait For Removal    ${VPN_INTERFACES}    ${SECOND_INTERFACE}
    Wait For Object    ${INTERFACES}    ${INTERFACE}
    Wait For Object    ${ELAN_INSTANCES}    ${ELAN}
    Wait For Object    ${VPN_INSTANCES}    ${NAMESPACE}

TC4 Both Instances Are Removed With The Last Pod
    [Documentation]    OpenDaylight keeps elan-instances and vpn-instances.
    [Tags]    tc4
    Request    DELETE    ${DRAFT02.data}/${POD.container}/pods/${POD_UID}    expected=200
    FOR    ${kind}    IN    ${INTERFACES}    ${ELAN_INTERFACES}    ${VPN_INTERFACES}
        Wait For Removal    ${kind}    ${INTERFACE}
    END
    Wait For Removal    ${ELAN_INSTANCES}    ${ELAN}
    Wait For Removal    ${VPN_INSTANCES}    ${NAMESPACE}

TC4 The Backend Has Removed The Pods
    [Tags]    tc4    ovn
    Wait For Sync
    Row Should Not Exist    Logical_Switch_Port    ${INTERFACE}
    Row Should Not Exist    Logical_Switch_Port    ${SECOND_INTERFACE}


*** Keywords ***
Write Pool And Node
    Begin Without Entries
    ${body}=    Body    pool.json
    Request    POST    ${DRAFT02.data}/${POOL.container}/    ${body}    expected=204
    ${body}=    Body    node.json
    Request    POST    ${DRAFT02.data}/${NODE.container}    ${body}    expected=204

Endpoints Should Be
    [Documentation]    The service must have exactly these endpoints.
    [Arguments]    @{want}
    ${object}=    Wait For Object    ${SERVICES}    ${SERVICE_UID}
    VAR    ${vip}    ${object}[vip][0]
    Should Be Equal    ${vip}[address]    ${SERVICE_ADDRESS}
    ${addresses}=    Evaluate    [e['address'] for e in $vip['endpoint'] if e['port'] == 8080]
    Lists Should Be Equal    ${addresses}    ${want}
